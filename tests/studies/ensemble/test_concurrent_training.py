"""Members in several processes: the same bytes as one after the other, also when a process dies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.studies.ensemble import concurrent_training
from pipeline.studies.ensemble.members import Member
from tests.studies.ensemble.protocol_runs import go, outs, settings, short


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.usefixtures("ray_cluster")
def test_members_side_by_side_one_of_them_killed_give_the_bytes_of_one_by_one(
    fresh: Callable[[], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone, how = fresh(), fresh(), short(iterations=12, validate_every=6)
    mark = together / "killed"

    def work(
        member: Member, *how: Any
    ) -> None:  # the process of model 2 dies right after its first checkpoint
        import os
        import signal

        from pipeline.studies.ensemble import concurrent_training
        from pipeline.training import checkpoint

        save = checkpoint.save

        def save_and_die(*what: Any) -> None:
            save(*what)
            if member.model == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.save = save_and_die
        concurrent_training._train_in_process(member, *how)

    monkeypatch.setattr(concurrent_training, "_train_in_process", work)
    go(together, settings(folds=2, repeats=1, concurrent=2), how)
    assert mark.exists()
    said = capsys.readouterr().err
    assert "model 2, repeat 1: resuming at step 2 from" in said
    for model in (1, 2):
        assert f"model {model}, repeat 1: step 12/12  loss" in said
        assert f"model {model}, repeat 1: done" in said
    assert "ensemble tiny/baseline: 24/24 steps" in said
    assert "2 of 2 members done" in said
    go(alone, settings(folds=2, repeats=1), how)
    assert outs(together) == outs(alone)
