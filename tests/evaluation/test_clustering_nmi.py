"""NMI equals the definition and scikit-learn; k-means finds well separated clusters."""

import numpy as np
import pytest

from tests.oracles import retrieval as oracle
from unseen.evaluation.clustering import mutual_information, nmi


@pytest.mark.parametrize("seed", range(6))
def test_equals_the_definition_and_scikit_learn(seed: int) -> None:
    from sklearn.metrics import normalized_mutual_info_score

    generator = np.random.default_rng(seed)
    partition, other_partition = generator.integers(0, 7, 90) * 11, generator.integers(-3, 5, 90)
    other_partition[:40] = partition[:40]
    value = mutual_information(partition, other_partition)
    assert value == pytest.approx(oracle.nmi(partition.tolist(), other_partition.tolist()), abs=1e-12)
    assert value == pytest.approx(normalized_mutual_info_score(partition, other_partition), abs=1e-12)


def test_equal_and_trivial_partitions() -> None:
    labels, single = np.arange(12) // 3, np.zeros(12, np.int64)
    assert mutual_information(labels, 5 - labels) == pytest.approx(1.0, abs=1e-15)
    assert mutual_information(single, single) == 1.0
    assert mutual_information(labels, single) == 0.0


def test_separated_clusters_have_nmi_one_and_noise_has_not() -> None:
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 40)
    separated = (np.eye(8)[labels] + 0.02 * generator.standard_normal((200, 8))).astype(np.float32)
    assert max(nmi(separated, labels, seed) for seed in range(3)) == pytest.approx(1.0, abs=1e-12)
    assert nmi(generator.standard_normal((200, 8)).astype(np.float32), labels, 0) < 0.2
    assert nmi(separated, labels, 1) == nmi(separated, labels, 1)
