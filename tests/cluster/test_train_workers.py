"""Which failures end a run of workers, and the fallback to Ray's own trainer where its internals differ."""

import itertools
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray.train.torch
import torch
from ray.exceptions import ActorDiedError, RayTaskError
from ray.train import ControllerError, PreemptionError, PreemptionInfo, ScalingConfig, WorkerGroupError
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.preemption import PreemptionContext
from ray.train.v2._internal.execution.scaling_policy import ScalingPolicy

from tests.training.jobs import job, recipe
from unseen.cluster import lean_trainer, train_workers
from unseen.cluster.connection import Cluster, connection
from unseen.runtime.errors import UserError

HERE = Cluster(private=True, name="this machine", cpus=2, gpus=0)
DAMAGED = UserError("Row 3 is damaged.", "Ingest again.")


def ended(failures: list[Exception], workers: int, deaths: int = 1, lost: str = "") -> None:
    error = WorkerGroupError("a worker failed", dict(enumerate(failures)))
    train_workers.raise_unless_dead(error, "a/b/0", workers, deaths, lost)


def test_a_dead_worker_is_restarted_twice() -> None:
    ended([ActorDiedError()], workers=1)
    ended([RuntimeError("Connection closed by peer"), ActorDiedError()], workers=2, deaths=2)
    with pytest.raises(
        UserError, match=r"worker of the training of a/b/0 died 3 times without .*: a worker failed"
    ):
        ended([ActorDiedError()], workers=1, deaths=3)


def test_a_lost_node_is_the_cause_of_repeated_deaths() -> None:
    with pytest.raises(UserError, match="died 3 times") as caught:
        ended([ActorDiedError()], workers=1, deaths=3, lost="node b (10.0.0.2)")
    assert "node b (10.0.0.2) left the cluster" in caught.value.remedy
    assert "memory" not in caught.value.remedy


def test_a_preempted_node_is_the_death_of_a_worker(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` counts it, and Ray does not start the workers again."""
    error = PreemptionError(PreemptionInfo(deadline_ms=0, preempted_node_to_ranks={"b": [1]}))
    limits = []

    def fit(trainer: Any) -> Any:
        limits.append(trainer.run_config.failure_config.max_preemption_failures)
        raise error

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    monkeypatch.setattr(Cluster, "claim", lambda *_: {"CPU": 1.0})
    with pytest.raises(UserError, match=r"died 3 times without .*: .*node preemption") as caught:
        train_workers.fit(job(root, recipe("baseline")), [2], "no", replace(HERE, private=False))
    assert "Its nodes were preempted" in caught.value.remedy
    assert limits == [0] * 3


@pytest.mark.parametrize(
    "error",
    [
        ActorDiedError(),
        ControllerError(ActorDiedError()),
        WorkerGroupError("a worker failed", {0: ActorDiedError()}),
    ],
    ids=["controller", "worker of the controller", "worker"],
)
def test_a_cluster_that_ended_is_a_user_error_and_no_difference_of_internals(
    error: Exception,
    fits: list[str],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(trainer: Any) -> Any:
        monkeypatch.setattr(train_workers, "lost_nodes", lambda _: "node a (10.0.0.1)")
        raise error

    monkeypatch.setattr(lean_trainer.LeanTrainer, "fit", fail)
    with pytest.raises(UserError, match=r"The Ray cluster of this machine ended during .* of tiny") as caught:
        train_workers.fit(job(root, recipe("baseline")), [2], "no", HERE)
    assert "The same command resumes from the last checkpoint." in caught.value.remedy
    assert fits == []
    assert capsys.readouterr().err == ""


def test_an_error_of_the_loop_ends_the_run() -> None:
    with pytest.raises(UserError, match="Row 3"):
        ended([RuntimeError("Connection closed by peer"), DAMAGED], workers=2)
    with pytest.raises(WorkerGroupError):
        ended([RuntimeError("a defect")], workers=1)
    with pytest.raises(WorkerGroupError):
        ended([ValueError("a defect"), ActorDiedError()], workers=2)


@pytest.fixture(autouse=True)
def nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No node leaves, and all have the files; tests of Ray have the nodes of their cluster."""
    if request.node.get_closest_marker("ray") is None:
        monkeypatch.setattr(train_workers, "alive_nodes", dict)
        monkeypatch.setattr(train_workers, "shared_nodes", lambda *_: {})
        monkeypatch.setattr(train_workers, "lost_nodes", lambda _: "")


@pytest.fixture
def without_module() -> Any:
    """Lets the test import unseen.cluster.lean_trainer anew."""
    name = "unseen.cluster.lean_trainer"
    module = sys.modules.pop(name, None)
    yield
    sys.modules[name] = module or lean_trainer


def test_the_lean_trainer_is_for_private_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    assert train_workers.trainer_class(private=True) is lean_trainer.LeanTrainer
    assert train_workers.trainer_class(private=False) is TorchTrainer
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("without_module")
def test_a_missing_internal_module_selects_rays_trainer_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "ray.train.v2._internal.callbacks", None)
    assert train_workers.trainer_class(private=True) is TorchTrainer
    assert capsys.readouterr().err.count("warning: the fast start of workers fails with Ray") == 1


@pytest.mark.usefixtures("without_module")
def test_a_missing_internal_attribute_selects_rays_trainer_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delattr(ScalingPolicy, "_maybe_send_resource_request")
    assert train_workers.trainer_class(private=True) is TorchTrainer
    errors = capsys.readouterr().err
    assert errors.count("warning:") == 1
    assert "_maybe_send_resource_request" in errors


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs of Ray's trainer, which returns at once."""
    names: list[str] = []

    def fit(trainer: TorchTrainer) -> Any:
        names.append(trainer.run_config.name)
        return SimpleNamespace(return_value={"result": {}})

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    return names


@pytest.mark.parametrize(
    "error",
    [TypeError("no such argument"), ControllerError(TypeError("likewise")), ActorDiedError()],
    ids=["driver", "controller", "start of the controller"],
)
def test_failing_internals_select_rays_trainer_with_one_warning(
    error: Exception,
    fits: list[str],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(trainer: Any) -> Any:
        raise error

    monkeypatch.setattr(lean_trainer.LeanTrainer, "fit", fail)
    assert train_workers.fit(job(root, recipe("baseline")), [2], "no", HERE) == {"result": {}}
    assert fits == ["run-1"]
    assert capsys.readouterr().err.count("warning:") == 1


@pytest.mark.parametrize("elastic", [True, False])
def test_a_helper_of_ray_whose_constructor_fails_is_started_once(
    elastic: bool, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while a node leaves: the error of a constructor comes again. Ray's trainer replaces the own."""
    starts = []

    def fit(trainer: Any) -> Any:
        starts.append(type(trainer))
        cause = RayTaskError("__init__", "TypeError: no such argument", TypeError("no such argument"))
        raise ControllerError(ActorDiedError(cause))

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    monkeypatch.setattr(Cluster, "claim", lambda *_: {"CPU": 1.0})
    monkeypatch.setattr(train_workers, "lost_nodes", lambda _: "node b")
    cluster = Cluster(private=False, name="a cluster", cpus=8, gpus=0)
    with pytest.raises(UserError, match=r"node b left a cluster during the training of .*no such argument"):
        train_workers.fit(job(root, recipe("baseline")), [1, 2] if elastic else [2], "no", cluster)
    assert starts == [lean_trainer.ElasticTrainer] * elastic + [TorchTrainer]
    assert capsys.readouterr().err.count("warning: the fast start of workers fails with Ray") == elastic


@pytest.mark.parametrize("private", [True, False])
def test_workers_that_ray_cannot_start_are_a_user_error(
    private: bool,
    fits: list[str],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(trainer: Any) -> Any:
        raise ControllerError(TimeoutError("no worker after 60 s"))

    monkeypatch.setattr(lean_trainer.LeanTrainer if private else TorchTrainer, "fit", fail)
    shared = Cluster(private=private, name="the cluster", cpus=2, gpus=0)
    monkeypatch.setattr(Cluster, "claim", lambda *arguments: {"CPU": 1.0})
    with pytest.raises(UserError, match=r"Ray could not start the workers of .*no worker after 60 s"):
        train_workers.fit(job(root, recipe("baseline")), [2], "no", shared)
    assert fits == []


class WorkerGroupStartupTimeoutError(Exception):
    """Ray's has this name."""


@pytest.mark.parametrize("shared", [True, False], ids=["run", "machine"])
def test_a_lost_race_for_resources_returns_to_the_claim_within_its_limit(
    shared: bool, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Train waits 400 s for resources that another stage took. A cluster of one stage has none."""
    claims: list[float] = []
    clock = itertools.count(step=400)

    def claim(*arguments: Any) -> dict[str, float]:
        claims.append(arguments[-1])
        return {"CPU": 1.0}

    def fit(trainer: Any) -> Any:
        if len(claims) < 5:
            raise ControllerError(WorkerGroupStartupTimeoutError("no resources"))
        return SimpleNamespace(return_value={})

    monkeypatch.setattr(Cluster, "claim", claim)
    monkeypatch.setattr(lean_trainer.LeanTrainer, "fit", fit)
    monkeypatch.setattr(train_workers, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    cluster = replace(HERE, shared=shared)
    training = job(root, recipe("baseline"))
    if shared:
        assert train_workers.fit(training, [2], "no", cluster) == {}
        assert claims == [0.0, 400.0, 800.0, 1200.0, 1600.0]
    else:
        with pytest.raises(UserError, match=r"Ray could not start the workers .*: no resources"):
            train_workers.fit(training, [2], "no", cluster)
        assert claims == [0.0] * 3


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_trainings_that_claim_one_cpu_at_once_train_one_after_the_other(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one holds the CPU until Ray Train has given up the start of the second one."""
    claimed, claims, results, lost = threading.Barrier(2), [], [], root / "lost"

    class Watched(Cluster):
        def claim(self, *arguments: Any) -> dict[str, float]:
            is_first = len(claims) < 2
            claims.append(arguments[-1])
            if not is_first:
                lost.touch()
            bundle = super().claim(*arguments)
            if is_first:
                claimed.wait(60)  # both find the CPU free
            return bundle

    def loop(*_: Any) -> str:
        while not lost.exists():
            time.sleep(0.1)
        return "trained"

    def train(seed: int) -> None:
        try:
            training = job(root, recipe("baseline"), seed)
            results.append(train_workers.fit(training, [1], "no", cluster, loop)["result"])
        finally:
            lost.touch()

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # Ray truncates it to seconds. With 0 both would lose each race.
    monkeypatch.setenv("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "2")
    with connection(1, gpu=False, prestart=False):
        cluster = Watched(private=True, name="this machine", cpus=1, gpus=0, shared=True)
        # No process waits for daemon threads: a training without an end is a failure of this test alone.
        threads = [threading.Thread(target=train, args=(seed,), daemon=True) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == ["trained"] * 2
    assert claims[:2] == [0.0, 0.0]
    assert len(claims) == 3  # one training lost the race, once
    assert claims[2] > 2


@pytest.mark.parametrize(
    ("cpus", "gpus", "gpu", "threads", "most"),
    [(9, 0, "no", 1, 8), (9, 0, "no", 2, 4), (9, 0, "no", 4, 2), (9, 4, "auto", 4, 4), (9, 4, "no", 4, 2)],
)
def test_the_largest_number_of_workers_fits_the_threads_of_each_or_the_gpus(
    cpus: int, gpus: int, gpu: str, threads: int, most: int
) -> None:
    assert train_workers._most([1, 2, 4, 8], replace(HERE, cpus=cpus, gpus=gpus), gpu, threads) == most


@pytest.mark.parametrize(("bundle", "backend"), [({"CPU": 1.0}, "gloo"), ({"GPU": 1.0}, "nccl")])
def test_workers_exchange_by_nccl_on_gpus(bundle: dict[str, float], backend: str, tmp_path: Path) -> None:
    arguments = train_workers._arguments([2], bundle, True, tmp_path)
    assert arguments["torch_config"].backend == backend
    assert arguments["scaling_config"].use_gpu is (backend == "nccl")


def test_the_handler_of_ctrl_c_is_restored(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(trainer: Any) -> Any:
        signal.signal(signal.SIGINT, lambda *_: sys.exit(0))  # as Ray's trainer does
        return SimpleNamespace(return_value={})

    monkeypatch.setattr(lean_trainer.LeanTrainer, "fit", fit)
    handler = signal.getsignal(signal.SIGINT)
    assert train_workers.fit(job(root, recipe("baseline")), [2], "no", HERE) == {}
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_worker_without_the_shards_of_the_driver_names_its_node(tmp_path: Path) -> None:
    config = {"job": job(tmp_path, recipe("baseline")), "shared": tmp_path / "shards", "loop": print}
    with pytest.raises(UserError, match=rf"does not have {tmp_path}/shards"):
        train_workers.work(config)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """That of a worker in this process."""
    numbers = ("get_local_world_size", "get_world_rank", "get_world_size")
    context = SimpleNamespace(**dict.fromkeys(numbers, lambda: 1))
    monkeypatch.setattr(ray.train, "get_context", lambda: context)
    monkeypatch.setattr(ray.train.torch, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(train_workers, "_preemption", lambda: lambda: False)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    paths = {"console": tmp_path / "console", "notice": tmp_path / "notice"}
    return {"job": job(tmp_path, recipe("baseline")), "shared": None, "columns": None, **paths}


def test_every_loop_learns_that_a_worker_received_sigterm(config: dict[str, Any]) -> None:
    """Any worker creates the file that all look for."""

    def loop(*arguments: Any) -> list[bool]:
        *_, report, preempted = arguments
        assert report is train_workers._report
        before = preempted()
        config["notice"].touch()
        time.sleep(0.6)
        return [before, preempted()]

    assert train_workers.work(config | {"loop": loop})["result"] == [False, True]


def test_a_worker_whose_memory_is_full_ends_the_run_with_a_message(config: dict[str, Any]) -> None:
    """Torch's error is a RuntimeError, after which a run of several workers would start again."""

    def loop(*_: Any) -> None:
        raise errors.pop()

    errors = [
        RuntimeError("a defect"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    ]
    config["loop"] = loop
    with pytest.raises(UserError, match=r"2\.00 GiB could not be allocated") as caught:
        train_workers.work(config)
    with pytest.raises(UserError, match=r"2\.00 GiB"):
        ended([RuntimeError("Connection closed by peer"), caught.value], workers=2)
    with pytest.raises(RuntimeError, match="a defect"):
        train_workers.work(config)


def test_a_worker_reads_the_notice_of_ray_without_waiting_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = PreemptionInfo(deadline_ms=0, preempted_node_to_ranks={"b": [1]})
    notice = PreemptionContext()
    context = SimpleNamespace(preemption_context=notice)
    monkeypatch.setattr(lean_trainer, "get_train_context", lambda: context)
    preempted = train_workers._preemption()
    assert not preempted()
    notice.preemption_info = info
    assert preempted()


@pytest.mark.usefixtures("without_module")
def test_a_worker_of_another_ray_has_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.train.v2._internal.execution.context", None)
    assert not train_workers._preemption()()


@pytest.mark.parametrize(
    ("resources", "count"),
    [
        ({}, 0),
        ({"a": {"CPU": 2.0}}, 0),
        ({"a": {"CPU": 9.0}}, 4),
        ({"a": {"CPU": 8.0}, "b": {"CPU": 8.0}}, 6),
    ],
)
def test_elastic_workers_can_share_the_batch(resources: dict[str, dict[str, float]], count: int) -> None:
    """Two CPUs each; 4 and 6 workers can share the batch, 5 cannot."""
    scaling = ScalingConfig(num_workers=(2, 6), resources_per_worker={"CPU": 2.0})
    policy = lean_trainer.DividingPolicy(scaling, (3, 4, 6))
    assert policy._count_possible_workers(resources) == count


def test_a_private_cluster_takes_the_largest_number_of_workers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = []

    def fit(trainer: Any) -> Any:
        numbers.append(trainer.scaling_config.num_workers)
        return SimpleNamespace(return_value={})

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    train_workers.fit(job(root, recipe("baseline")), [1, 2, 3, 4], "no", HERE)
    assert numbers == [2]


@pytest.mark.parametrize("worlds", [[2], [1, 2, 4]], ids=["fixed", "elastic"])
@pytest.mark.parametrize(
    "error",
    [
        WorkerGroupError("a worker failed", {0: ActorDiedError()}),
        PreemptionError(PreemptionInfo(deadline_ms=0, preempted_node_to_ranks={"b": [1]})),
        ControllerError(ActorDiedError()),
    ],
    ids=["killed", "preempted", "helper of Ray"],
)
def test_only_deaths_without_a_new_checkpoint_end_a_training(
    error: Exception,
    worlds: list[int],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nodes leave five times, each time after a checkpoint; then a worker dies three times at one step. The
    checkpoint of another recipe has a larger number of steps. A helper of Ray may die instead of a worker."""
    cluster = Cluster(private=False, name="a cluster", cpus=8, gpus=0)
    training = job(root, recipe("baseline"))
    monkeypatch.setattr(Cluster, "claim", lambda *_: {"CPU": 1.0})
    monkeypatch.setattr(train_workers, "lost_nodes", lambda _: "node b")
    assert training.state is not None
    state, other = (training.state / f"tiny/baseline/0-{digest}" for digest in ("abc", "def"))
    state.mkdir(parents=True)
    other.mkdir()
    (other / "00000900.pt").touch()
    starts = []

    def fit(trainer: Any) -> Any:
        starts.append((type(trainer), trainer.scaling_config.num_workers))
        if len(starts) <= 5:
            (state / f"{len(starts):08d}.pt").touch()
        raise error

    monkeypatch.setattr(TorchTrainer, "fit", fit)
    with pytest.raises(UserError, match=r"died 3 times without a new checkpoint: .") as caught:
        train_workers.fit(training, worlds, "no", cluster)
    assert "\n" not in caught.value.what
    cause = "a node was preempted" if isinstance(error, PreemptionError) else "node b left the cluster"
    line = f"train tiny/baseline/0: {cause}; starting again from the last checkpoint.\n"
    assert capsys.readouterr().err == line * 6
    trainer = lean_trainer.ElasticTrainer if len(worlds) > 1 else TorchTrainer
    assert starts == [(trainer, (1, 4) if len(worlds) > 1 else 2)] * 7
