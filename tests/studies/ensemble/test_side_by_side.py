"""Members under Ray: the same bytes as one after the other, whatever dies on the way, and errors as they were raised."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.errors import UserError
from pipeline.studies.ensemble import side_by_side
from pipeline.studies.ensemble.members import Member, plan
from tests.studies.ensemble.protocol_runs import go, outs, settings, short
from tests.training.jobs import job


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_members_side_by_side_one_of_them_killed_give_the_bytes_of_one_by_one(
    fresh: Callable[[], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, alone, how = fresh(), fresh(), short(iterations=40, validate_every=20)
    mark = together / "killed"

    def work(member: Member, *how: Any) -> None:  # the process of model 2 dies right after its first checkpoint
        import os
        import signal

        from pipeline.studies.ensemble import side_by_side
        from pipeline.training import checkpoint

        save = checkpoint.save

        def save_and_die(*what: Any) -> None:
            save(*what)
            if member.model == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)

        checkpoint.save = save_and_die
        side_by_side._work(member, *how)

    monkeypatch.setattr(side_by_side, "_work", work)
    go(together, settings(folds=2, repeats=1, concurrent=2), how)
    assert mark.exists()
    said = capsys.readouterr().err
    assert "model 2, repeat 1: resuming at step 2 from" in said
    for model in (1, 2):
        assert f"model {model}, repeat 1: step 40/40  loss" in said
        assert f"model {model}, repeat 1: done" in said
    assert "ensemble tiny/baseline: 80/80 steps" in said
    assert "2 of 2 members done" in said
    go(alone, settings(folds=2, repeats=1), how)
    assert outs(together) == outs(alone)


def test_what_ended_a_member_is_said_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    base = job(tmp_path, short())
    member = plan(base, settings(), tmp_path, "shards", "no")[1]

    def ended(error: Exception) -> None:
        def get(reference: object) -> None:
            raise error

        monkeypatch.setattr(ray, "get", get)
        side_by_side._outcome(None, member)

    with pytest.raises(UserError) as caught:
        ended(ray.exceptions.RayTaskError("_work", "", UserError("Row 3 is damaged.", "Ingest again.")))
    assert (caught.value.what, caught.value.remedy) == ("Model 2, repeat 1: Row 3 is damaged.", "Ingest again.")
    with pytest.raises(UserError, match=r"The process of model 2, repeat 1 died 3 times: .*\n.*lower ensemble.concurrent.*resumes"):
        ended(ray.exceptions.WorkerCrashedError())
    with pytest.raises(ray.exceptions.RayTaskError):
        ended(ray.exceptions.RayTaskError("_work", "a traceback", ValueError("a defect")))
