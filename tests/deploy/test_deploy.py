"""deploy/: the manifests have fields that exist, and all files name the versions of the lock files."""

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import ray
from packaging.specifiers import SpecifierSet
from pydantic import ValidationError
from ray._private.ray_constants import DEFAULT_DASHBOARD_AGENT_LISTEN_PORT as PORT
from ray.autoscaler._private.docker import docker_start_cmds
from ruamel.yaml import YAML

from tests.deploy.dockerfile import DOCKERFILE, ROOT, chain, copies, read
from tests.deploy.kuberay import HEALTH, HttpGet, PersistentVolumeClaim, RayCluster, RayClusterSpec, RayJob
from unseen.cli import main as cli

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = "".join(path.read_text("utf-8") for path in (ROOT / "requirements").glob("*.txt"))
TARGETS = read(DOCKERFILE.read_text(encoding="utf-8"))
IMAGE = f"registry.example.com/unseen:{PROJECT['version']}-cuda"


def read_yaml(name: str) -> Any:
    return YAML(typ="safe").load((ROOT / "deploy" / name).read_text(encoding="utf-8"))


def locked(package: str) -> str:
    match = re.search(rf"^{package}==(\S+)", LOCKS, re.MULTILINE)
    assert match is not None
    return match[1]


@pytest.fixture(scope="module")
def job() -> RayJob:
    return RayJob.model_validate(read_yaml("kubernetes/rayjob.yaml"))


def test_the_job_deletes_the_cluster_that_the_manifest_of_the_cluster_describes(job: RayJob) -> None:
    cluster = RayCluster.model_validate(read_yaml("kubernetes/raycluster.yaml"))
    assert job.spec.ray_cluster_spec == cluster.spec
    assert job.spec.shutdown_after_job_finishes
    assert cluster.spec.enable_in_tree_autoscaling


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("spec", "shutDownAfterJobFinishes"), True, "Extra inputs are not permitted"),
        (("spec", "backoffLimit"), "3", "valid integer"),
        (("spec", "rayClusterSpec", "rayVersion"), "2.51.0", "no token authentication"),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "minReplicas"), 9, "minReplicas"),
        (
            ("spec", "rayClusterSpec", "headGroupSpec", "template", "spec", "volumes", 0, "name"),
            "other",
            "volumes that do not exist",
        ),
    ],
)
def test_the_schema_refuses_a_wrong_field(path: tuple[str | int, ...], value: Any, message: str) -> None:
    manifest = copy.deepcopy(read_yaml("kubernetes/rayjob.yaml"))
    block = manifest
    for key in path[:-1]:
        block = block[key]
    block[path[-1]] = value
    with pytest.raises(ValidationError, match=message):
        RayJob.model_validate(manifest)


def test_all_nodes_mount_the_shared_volume_at_one_path(job: RayJob) -> None:
    claim = PersistentVolumeClaim.model_validate(read_yaml("kubernetes/volume.yaml"))
    assert claim.spec.access_modes == ["ReadWriteMany"]
    for pod in job.spec.ray_cluster_spec.pods():
        (volume,) = pod.volumes
        assert volume.persistent_volume_claim.claim_name == claim.metadata.name
        for container in pod.containers:
            assert [mount.mount_path for mount in container.volume_mounts] == ["/shared"]
    assert "cd /shared/unseen && " in job.spec.entrypoint
    environment = [step for name, step in TARGETS["base"].steps if name == "ENV"]
    assert "PYTHONPATH=/shared/unseen" in environment


def test_no_directory_of_the_image_is_on_the_mounted_volume() -> None:
    """The runtime of containers creates a missing working directory as root: user 1000 could not write."""
    places = [step for target in chain(TARGETS, "cuda") for name, step in target.steps if name == "WORKDIR"]
    assert places[-1] == "/home/unseen"
    assert [place for place in places if place.startswith("/shared")] == []


def test_the_launcher_mounts_the_token_into_the_home_of_the_user_and_finds_rsync() -> None:
    launcher = read_yaml("aws.yaml")
    steps = [step for target in chain(TARGETS, "cuda") for step in target.steps]
    (home,) = [
        step.removeprefix("HOME=") for name, step in steps if name == "ENV" and step.startswith("HOME=")
    ]
    docker = launcher["docker"]
    command = docker_start_cmds(
        "ubuntu",
        docker["image"],
        launcher["file_mounts"],
        docker["container_name"],
        docker["run_options"],
        launcher["cluster_name"],
        home,
        "docker",
    )
    assert ":/home/unseen/.ray/auth_token " in command
    (packages,) = [step for name, step in steps if name == "RUN" and "apt-get install" in step]
    assert "rsync" in packages.split()


def test_the_user_of_the_image_owns_the_storage_of_the_launcher(job: RayJob) -> None:
    (uid,) = {pod.security_context.run_as_user for pod in job.spec.ray_cluster_spec.pods()}
    commands = read_yaml("aws.yaml")["initialization_commands"]
    mount = next(number for number, command in enumerate(commands) if "mount -t nfs4" in command)
    assert commands[mount + 1 :] == [f"sudo chown {uid}:{uid} /shared"]


def test_the_head_runs_no_training_and_workers_have_a_gpu(job: RayJob) -> None:
    cluster = job.spec.ray_cluster_spec
    assert cluster.head_group_spec.ray_start_params == {"num-cpus": "0", "num-gpus": "0"}
    (workers,) = cluster.worker_group_specs
    (container,) = workers.template.spec.containers
    assert container.resources.limits["nvidia.com/gpu"] == "1"
    jobs = re.search(r"unseen run -j (\d+)", job.spec.entrypoint)
    assert jobs is not None
    assert int(jobs[1]) == workers.max_replicas


def test_probes_ask_the_public_address_of_the_agent_of_ray(job: RayJob) -> None:
    """test_job_submission.py asks it. Path and times are those of KubeRay 1.6.2
    (ray-operator/controllers/ray/utils/constant.go), which adds probes only where a manifest has none."""
    for pod, timeout in zip(job.spec.ray_cluster_spec.pods(), (5, 2), strict=True):
        (container,) = pod.containers
        ready, alive = container.readiness_probe, container.liveness_probe
        assert ready.http_get == alive.http_get == HttpGet.model_validate({"path": HEALTH, "port": PORT})
        assert ready.timeout_seconds == alive.timeout_seconds == timeout
        assert (ready.initial_delay_seconds, ready.failure_threshold) == (10, 10)
        assert (alive.initial_delay_seconds, alive.failure_threshold) == (30, 120)


def test_the_launcher_file_conforms_to_the_schema_of_ray() -> None:
    schema = json.loads((Path(ray.__file__).parent / "autoscaler/ray-schema.json").read_text("utf-8"))
    launcher = read_yaml("aws.yaml")
    jsonschema.validate(launcher, schema)
    assert launcher["head_node_type"] in launcher["available_node_types"]
    workers = [node for node in launcher["available_node_types"].values() if "max_workers" in node]
    assert sum(node["max_workers"] for node in workers) == launcher["max_workers"]


def test_versions_are_those_of_the_locks(job: RayJob) -> None:
    cluster: RayClusterSpec = job.spec.ray_cluster_spec
    assert cluster.ray_version == locked("ray")
    images = [container.image for pod in cluster.pods() for container in pod.containers]
    assert {*images, read_yaml("aws.yaml")["docker"]["image"]} == {IMAGE}
    assert f"--tag {IMAGE} ." in DOCKERFILE.read_text("utf-8")
    python = re.fullmatch(r"python:(\d+\.\d+)-slim-\w+", TARGETS["system"].base)
    assert python is not None
    assert python[1] in SpecifierSet(PROJECT["requires-python"])


def test_the_image_is_built_from_files_and_targets_that_exist() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    sources = [
        source
        for target in TARGETS.values()
        for origin, paths, _ in copies(target)
        if origin is None
        for source in paths
    ]
    assert sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    allowed = [
        line[1:] for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line[0] == "!"
    ]
    assert sorted(sources) == sorted(allowed)
    for kind, build in (("cpu", "cpu"), ("cuda", "gpu")):
        ((origin, _, _),) = [
            copied for target in chain(TARGETS, kind) for copied in copies(target) if copied[0] is not None
        ]
        assert origin in TARGETS
        (command,) = [step for name, step in TARGETS[origin].steps if name == "RUN"]
        words = command.split()
        made = words[words.index("make") + 1 :]
        assert f"FAISS={build}" in made
        names = [word for word in made if "=" not in word]
        assert names == ["cluster", "s3"]
        assert set(names) <= set(phony[1].split())


def test_the_packages_of_every_image_are_compiled() -> None:
    """The user of an image cannot write into /opt/venv: each process would compile all its modules again."""
    targets = read(DOCKERFILE.read_text(encoding="utf-8"))
    installs = [
        argument
        for target in targets.values()
        for instruction, argument in target.steps
        if instruction == "RUN" and "make VENV=" in argument
    ]
    assert len(installs) == 3
    assert all("COMPILE=--compile" in argument for argument in installs)


def test_the_container_of_the_service_runs_the_command_without_tools_of_the_build() -> None:
    target = TARGETS["serve"]
    assert target.base == TARGETS["system"].base, "no compiler, git or make"
    assert copies(target) == [("install-serve", ["/opt/venv"], "/opt/venv")]
    steps = dict(target.steps)
    assert steps["USER"] == "unseen"
    assert [user for name, user in target.steps if name == "USER"] == ["unseen"]
    assert [step for name, step in target.steps if name == "RUN"] == [
        "useradd --create-home --uid 1000 unseen"
    ]
    program, *arguments = json.loads(steps["ENTRYPOINT"])
    assert program == "unseen"
    context = cli.command.make_context("unseen", [*arguments, "/catalog"])
    name, command, rest = cli.command.resolve_command(context, [*arguments, "/catalog"])
    values = command.make_context(name, rest).params
    assert values["host"] == "0.0.0.0"
    assert steps["EXPOSE"] == str(values["port"])
    check = steps["HEALTHCHECK"].partition(" CMD ")
    assert re.fullmatch(r"--start-period=\d+s", check[0])
    probe = json.loads(check[2])
    assert probe[:2] == ["python", "-c"]
    compile(probe[2], "HEALTHCHECK", "exec")
    assert f"http://127.0.0.1:{values['port']}/health" in probe[2]


def test_the_container_of_the_service_contains_the_wheel_and_the_locked_packages() -> None:
    link, command = [step for name, step in TARGETS["install-serve"].steps if name == "RUN"]
    assert link == "ln -s pipeline unseen"
    make, _, install = command.partition(" && ")
    assert make.split()[-1] == "serve"
    assert {"make", "VENV=/opt/venv", "FAISS=cpu"} <= {*make.split()}
    assert install == "/opt/venv/bin/python -m pip install --quiet --no-deps --no-build-isolation ."
    sources = {source for _, paths, _ in copies(TARGETS["install-serve"]) for source in paths}
    assert {"pipeline", "stages", "unseen_search", "dvc_parallel"} <= sources, "the packages of the wheel"
    links = [path for path in (ROOT / "pipeline/cli/project").iterdir() if path.is_symlink()]
    templates = [path.resolve().relative_to(ROOT) for path in links]
    assert all(sources & {str(path), str(path.parent)} for path in templates), "of `unseen init`"
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^serve: .*\n\t\$\(LOCKED\) -r requirements/serve\.txt$", makefile, re.MULTILINE)


@pytest.mark.parametrize("instruction", ["VOLUME /data", "CMD unseen", "ENTRYPOIN []"])
def test_the_reader_refuses_other_instructions(instruction: str) -> None:
    with pytest.raises(ValueError, match="not an instruction of this reader"):
        read(f"FROM python:3.11 AS one\n{instruction}\n")


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_container_runs_as_an_ordinary_user(kind: str, job: RayJob) -> None:
    steps = [step for target in chain(TARGETS, kind) for step in target.steps]
    assert [user for name, user in steps if name == "USER"] == ["unseen"]
    (created,) = [step for name, step in steps if name == "RUN" and step.startswith("useradd")]
    (uid,) = {pod.security_context.run_as_user for pod in job.spec.ray_cluster_spec.pods()}
    assert f"--uid {uid} unseen" in created
    assert all(pod.security_context.run_as_non_root for pod in job.spec.ray_cluster_spec.pods())


def test_pods_have_no_rights_of_the_kernel_and_workers_none_of_kubernetes(job: RayJob) -> None:
    pods = job.spec.ray_cluster_spec.pods()
    for pod in pods:
        assert pod.security_context.seccomp_profile.type == "RuntimeDefault"
        for container in pod.containers:
            assert not container.security_context.allow_privilege_escalation
            assert container.security_context.capabilities.drop == ["ALL"]
    assert [pod.automount_service_account_token for pod in pods] == [True, False], (
        "the head has the autoscaler"
    )
    autoscaler = job.spec.ray_cluster_spec.autoscaler_options.security_context
    assert not autoscaler.allow_privilege_escalation
    assert autoscaler.capabilities.drop == ["ALL"]


def test_the_machine_of_the_head_is_not_drained(job: RayJob) -> None:
    metadata = job.spec.ray_cluster_spec.head_group_spec.template.metadata
    assert metadata is not None
    assert metadata.annotations == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def test_the_storage_class_is_one_to_replace() -> None:
    """The default class of most clusters mounts a volume on one node alone."""
    claim = PersistentVolumeClaim.model_validate(read_yaml("kubernetes/volume.yaml"))
    docs = (ROOT / "docs/cluster.md").read_text(encoding="utf-8")
    assert f"`storageClassName: {claim.spec.storage_class_name}`" in docs
