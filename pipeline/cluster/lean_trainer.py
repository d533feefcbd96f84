"""Ray's TorchTrainer with fewer helper processes, for a private cluster, and with numbers of workers that
divide the batch, for a cluster whose nodes leave and join.

This is the only file that uses internals of Ray Train. Each helper is an actor: a Python process that imports
Ray Data. It omits the dataset manager (there are no Ray data sets), the placement group cleaner (the
groups end with the cluster) and the autoscaling coordinator (a private cluster does not grow). On two cores
they take 1.3, 1.6 and 1.3 s of CPU time (benchmarks/ray_overhead.py).

Ray's elastic policy starts as many workers as the cluster has, within limits. The workers of this project
take equal slices of the global batch, so that only some numbers are possible.

Importing this module raises ImportError or AttributeError if the internals differ. The caller then uses
TorchTrainer.
"""

from collections.abc import Sequence
from typing import Any

from ray.train import Result, ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks import DatasetsCallback
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.context import TrainContext, get_train_context
from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, FixedScalingPolicy

OVERRIDDEN = (
    TorchTrainer._create_default_callbacks,
    TorchTrainer._initialize_and_run_controller,
    TorchTrainer._register_sigint_handler,
    FixedScalingPolicy.after_controller_start,
    FixedScalingPolicy._maybe_send_resource_request,
    ElasticScalingPolicy._count_possible_workers,
    TrainContext.__dataclass_fields__["preemption_context"],
)


def preempted() -> bool:
    """Whether Ray has announced, to this worker, the loss of a node of the workers. Ray tells all of them.

    ray.train.get_preemption_info waits for all workers at each call, and rank 0 alone writes checkpoints.
    """
    return get_train_context().preemption_context.preemption_info is not None


class LeanTrainer(TorchTrainer):
    """A TorchTrainer on a private cluster; the same for the training function."""

    def _create_default_callbacks(self) -> list[Any]:
        callbacks = super()._create_default_callbacks()
        helpers = DatasetsCallback | PlacementGroupCleanerCallback
        return [callback for callback in callbacks if not isinstance(callback, helpers)]

    def _initialize_and_run_controller(self, **parts: Any) -> Result:
        parts["scaling_policy"] = FixedSize(self.scaling_config)
        return super()._initialize_and_run_controller(**parts)

    def _register_sigint_handler(self, controller: Any) -> None:
        """Ctrl-C raises KeyboardInterrupt in the stage, which ends the cluster."""


class FixedSize(FixedScalingPolicy):
    """A fixed number of workers, without requests to an autoscaler."""

    def after_controller_start(self, train_run_context: Any) -> None:
        return None

    def _maybe_send_resource_request(self) -> None:
        return None


class ElasticTrainer(TorchTrainer):
    """A TorchTrainer with the largest number of workers among `worlds` for which the cluster has resources.

    While it trains, Ray compares the resources every `elastic_resize_monitor_interval_s` seconds and starts
    the workers again if another number is possible.
    """

    def __init__(self, *arguments: Any, worlds: Sequence[int], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.worlds = tuple(worlds)

    def _initialize_and_run_controller(self, **parts: Any) -> Result:
        parts["scaling_policy"] = DividingPolicy(self.scaling_config, self.worlds)
        return super()._initialize_and_run_controller(**parts)

    def _register_sigint_handler(self, controller: Any) -> None:
        """Ctrl-C raises KeyboardInterrupt in the stage."""


class DividingPolicy(ElasticScalingPolicy):
    """Ray's elastic policy, restricted to some numbers of workers."""

    def __init__(self, scaling_config: ScalingConfig, worlds: Sequence[int]) -> None:
        super().__init__(scaling_config)
        self.worlds = tuple(worlds)

    def _count_possible_workers(self, reserved_resources: Any) -> int:
        possible = super()._count_possible_workers(reserved_resources)
        return max((world for world in self.worlds if world <= possible), default=0)
