"""Members in several processes give the same bytes as one after the other, also when a process dies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.studies.ensemble import concurrent_training
from pipeline.studies.ensemble.members import Member
from tests.studies.ensemble.protocol_runs import output_bytes, run_protocol, settings, short


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_parallel_members_with_a_killed_process_give_the_bytes_of_serial_ones(
    fresh: Callable[[], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    parallel_root, serial_root, short_recipe = fresh(), fresh(), short(iterations=12, validate_every=6)
    mark = parallel_root / "killed"

    # The process of model 2 dies after its first checkpoint.
    def work(member: Member, *options: Any) -> None:
        import os
        import signal

        from pipeline.studies.ensemble import concurrent_training
        from pipeline.training.checkpoint import Checkpoints

        save = Checkpoints.save

        def save_and_die(*arguments: Any) -> None:
            save(*arguments)
            if member.model == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        Checkpoints.save = save_and_die
        concurrent_training._train_in_process(member, *options)

    monkeypatch.setattr(concurrent_training, "_train_in_process", work)
    run_protocol(parallel_root, settings(folds=2, repeats=1, concurrent=2), short_recipe)
    assert mark.exists()
    errors = capsys.readouterr().err
    assert "model 2, repeat 1: resuming at step 2 from" in errors
    for model in (1, 2):
        assert f"model {model}, repeat 1: step 12/12  loss" in errors
        assert f"model {model}, repeat 1: done" in errors
    assert "ensemble tiny/baseline: 24/24 steps" in errors
    assert "2 of 2 members done" in errors
    run_protocol(serial_root, settings(folds=2, repeats=1), short_recipe)
    assert output_bytes(parallel_root) == output_bytes(serial_root)
