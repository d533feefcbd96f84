"""Independent tasks in several processes: errors contain the title of the task, and a dead process is an
error."""

import pytest

from pipeline.cluster import tasks
from pipeline.runtime.errors import UserError


def test_the_error_of_a_task_contains_its_title(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def fail_with(error: Exception) -> None:
        def get(reference: object) -> None:
            raise error

        monkeypatch.setattr(ray, "get", get)
        tasks.raise_failure(None, "model 2, repeat 1", "Lower ensemble.concurrent.")

    with pytest.raises(UserError) as caught:
        damaged = UserError("Row 3 is damaged.", "Ingest again.")
        fail_with(ray.exceptions.RayTaskError("_process", "", damaged))
    assert caught.value.what == "Model 2, repeat 1: Row 3 is damaged."
    assert caught.value.remedy == "Ingest again."
    with pytest.raises(UserError, match=r"The process of model 2, repeat 1 died 3 times: .*\n  Lower ens"):
        fail_with(ray.exceptions.WorkerCrashedError())
    with pytest.raises(ray.exceptions.RayTaskError):
        fail_with(ray.exceptions.RayTaskError("_process", "a traceback", ValueError("a defect")))
