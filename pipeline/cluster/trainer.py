"""Ray's TorchTrainer without what a private cluster has no use for, and with retries for dead workers only.

Each helper actor of Ray Train is a Python process of its own that imports Ray Data first: on two cores the default set takes a second training's
worth of start-up. Left out on a private cluster, where none of them has anything to do: the dataset manager (there are no Ray datasets), the
autoscaling coordinator (nothing grows), the placement group cleaner (it asks a dashboard that does not run; the groups end with the cluster).
"""

from typing import Any

import ray
from ray.exceptions import RayError
from ray.train import FailureConfig, Result, TrainingFailedError, WorkerGroupError
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.exceptions import RayTrainError
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.failure_handling import DefaultFailurePolicy, FailureDecision
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup


class Trainer(TorchTrainer):
    """A TorchTrainer that knows whether its cluster is private. Behaves as its base in all that a training sees."""

    def __init__(self, *arguments: Any, private: bool, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.private = private

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        if not self.private:
            return callbacks
        return [callback for callback in callbacks if not isinstance(callback, DatasetsCallback | PlacementGroupCleanerCallback)]

    def _initialize_and_run_controller(self, **parts: Any) -> Result:
        parts["failure_policy"] = RetryDeadWorkers(self.run_config.failure_config, self.scaling_config.num_workers)
        if not self.private:
            return super()._initialize_and_run_controller(**parts)
        parts["scaling_policy"] = FixedSize(self.scaling_config)
        controller = ray.remote(num_cpus=0)(Controller).remote(**parts)
        ray.get(controller.run.remote())
        return ray.get(controller.get_result.remote())


class Workers(WorkerGroup):
    """Workers in Python processes that are already there: a private cluster started them with every variable they need."""

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> dict[str, Any]:
        return {}


class Controller(TrainController):
    worker_group_cls = Workers


class FixedSize(FixedScalingPolicy):
    """As many workers as asked for, without telling an autoscaler."""

    def after_controller_start(self, train_run_context: Any) -> None:
        return None

    def _maybe_send_resource_request(self) -> None:
        return None


class RetryDeadWorkers(DefaultFailurePolicy):
    """A worker that died (killed, out of memory, a lost machine) is worth another try; an error that the loop raised would come again.

    Where several workers run, a RuntimeError is tried again too: it is what the others see when the one they exchange with has died.
    """

    def __init__(self, failure_config: FailureConfig, workers: int) -> None:
        super().__init__(failure_config)
        self.workers = workers

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        if any(self.workers == 1 or not isinstance(error, RuntimeError) for error in loop_errors(training_failed_error)):
            return FailureDecision.RAISE
        return super().make_decision(training_failed_error)


def loop_errors(error: TrainingFailedError) -> list[Exception]:
    """The exceptions that the loop itself raised, in rank order; none for a worker that died."""
    failures = error.worker_failures if isinstance(error, WorkerGroupError) else {}
    return [failures[rank] for rank in sorted(failures) if not isinstance(failures[rank], RayTrainError | RayError)]
