"""The protocol of an index contains its setting."""

import dataclasses

from unseen.evaluation.approximate import declaration
from unseen.evaluation.protocol import Protocol
from unseen.evaluation.settings import Hnsw, Ivf, IvfPq


def test_each_setting_has_its_own_hash() -> None:
    exact = Protocol("test", (1,), 0.95, 0)
    settings = [Ivf(), Ivf(probes=8), Ivf(lists=9), Hnsw(), Hnsw(search_width=8)]
    settings += [IvfPq(), IvfPq(code_bytes=64), IvfPq(refine=None), IvfPq(seed=1)]
    hashes = {dataclasses.replace(exact, search=declaration(setting)).hash() for setting in settings}
    assert len(hashes | {exact.hash()}) == 10
    assert declaration(Hnsw()) == (
        "approximate, hnsw: neighbours 32, build_width 100, search_width 64, build_threads 1; "
        "candidates scored and ordered as in exact search"
    )
