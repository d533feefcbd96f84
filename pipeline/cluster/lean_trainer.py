"""Ray's TorchTrainer with fewer helper processes, for a private cluster.

This is the only file that uses internals of Ray Train. Each helper is an actor: a Python process that imports
Ray Data. Left out are the dataset manager (there are no Ray data sets), the placement group cleaner (the
groups end with the cluster) and the autoscaling coordinator (a private cluster does not grow). The controller
and the workers use processes that the cluster started already, because these have all environment variables.

Importing this module raises ImportError or AttributeError where the internals differ. The caller then uses
TorchTrainer.
"""

from typing import Any

import ray
from ray.train import Result
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.scaling_policy import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup

OVERRIDDEN = (
    TorchTrainer._create_default_callbacks,
    TorchTrainer._initialize_and_run_controller,
    TrainController.worker_group_cls,
    WorkerGroup._get_worker_runtime_env,
    FixedScalingPolicy.after_controller_start,
    FixedScalingPolicy._maybe_send_resource_request,
)


class LeanTrainer(TorchTrainer):
    """A TorchTrainer on a private cluster; the same for the training function."""

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        helpers = DatasetsCallback | PlacementGroupCleanerCallback
        return [callback for callback in callbacks if not isinstance(callback, helpers)]

    def _initialize_and_run_controller(self, **parts: Any) -> Result:
        parts["scaling_policy"] = FixedSize(self.scaling_config)
        controller = ray.remote(num_cpus=0)(Controller).remote(**parts)
        ray.get(controller.run.remote())
        return ray.get(controller.get_result.remote())


class Workers(WorkerGroup):
    """Workers without environment variables of their own, so that they need no process of their own."""

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> dict[str, Any]:
        return {}


class Controller(TrainController):
    worker_group_cls = Workers


class FixedSize(FixedScalingPolicy):
    """A fixed number of workers, without requests to an autoscaler."""

    def after_controller_start(self, train_run_context: Any) -> None:
        return None

    def _maybe_send_resource_request(self) -> None:
        return None
