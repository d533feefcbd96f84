"""The fields of Kubernetes manifests that deploy/ uses, as strict models: an unknown field is an error.

Names, types, required fields and allowed values follow the custom resource definitions ray.io/v1 of KubeRay
1.6.2 and Kubernetes 1.28. The validators are the rules that KubeRay's controller checks itself
(ray-operator/controllers/ray/utils/validation.go).
"""

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

DnsLabel = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Natural = Annotated[int, Field(ge=0, lt=2**31)]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?$")]
HEALTH = "/api/healthz"  # of the agent of Ray on each node, with the GCS on the head: Ray 2.53 and newer
MINIMUM_OF_TOKENS = (2, 52)  # the first Ray version for which KubeRay accepts mode: token


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(Strict):
    name: DnsLabel


class Resources(Strict):
    requests: dict[str, Quantity]
    limits: dict[str, Quantity]

    @model_validator(mode="after")
    def _devices_are_equal(self) -> "Resources":
        """Kubernetes refuses an extended resource whose request differs from its limit."""
        for name in {*self.requests, *self.limits}:
            if "/" in name and self.requests.get(name) != self.limits.get(name):
                raise ValueError(f"{name}: request and limit differ")
        return self


class Variable(Strict):
    name: str
    value: str


class VolumeMount(Strict):
    name: DnsLabel
    mount_path: Annotated[str, Field(pattern="^/")]


class Capabilities(Strict):
    drop: list[str]


class ContainerSecurity(Strict):
    allow_privilege_escalation: bool
    capabilities: Capabilities


class HttpGet(Strict):
    path: Annotated[str, Field(pattern="^/")]
    port: Annotated[int, Field(gt=0, lt=2**16)]


class Probe(Strict):
    http_get: HttpGet
    initial_delay_seconds: Natural
    period_seconds: Annotated[Natural, Field(ge=1)]
    timeout_seconds: Annotated[Natural, Field(ge=1)]
    failure_threshold: Annotated[Natural, Field(ge=1)]


class Container(Strict):
    name: DnsLabel
    image: str
    security_context: ContainerSecurity
    resources: Resources
    readiness_probe: Probe
    liveness_probe: Probe
    env: list[Variable] = []
    volume_mounts: list[VolumeMount]


class Claim(Strict):
    claim_name: DnsLabel


class Volume(Strict):
    name: DnsLabel
    persistent_volume_claim: Claim


class SeccompProfile(Strict):
    type: Literal["RuntimeDefault", "Unconfined"]


class SecurityContext(Strict):
    run_as_non_root: bool
    run_as_user: Natural
    fs_group: Natural
    seccomp_profile: SeccompProfile


class Toleration(Strict):
    key: str
    operator: Literal["Exists", "Equal"]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class PodSpec(Strict):
    restart_policy: Literal["Never"]  # required by version 2 of the autoscaler
    security_context: SecurityContext
    tolerations: list[Toleration] = []
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume]
    termination_grace_period_seconds: Natural = 30
    automount_service_account_token: bool = True

    @model_validator(mode="after")
    def _mounts_name_volumes(self) -> "PodSpec":
        volumes = {volume.name for volume in self.volumes}
        for container in self.containers:
            if unknown := {mount.name for mount in container.volume_mounts} - volumes:
                raise ValueError(f"{container.name} mounts volumes that do not exist: {sorted(unknown)}")
        return self


class PodMetadata(Strict):
    annotations: dict[str, str]


class PodTemplate(Strict):
    metadata: PodMetadata | None = None
    spec: PodSpec


class Head(Strict):
    ray_start_params: dict[str, str]
    template: PodTemplate


class WorkerGroup(Strict):
    group_name: DnsLabel
    replicas: Natural
    min_replicas: Natural
    max_replicas: Natural
    ray_start_params: dict[str, str]
    template: PodTemplate

    @model_validator(mode="after")
    def _replicas_ascend(self) -> "WorkerGroup":
        if not self.min_replicas <= self.replicas <= self.max_replicas:
            raise ValueError(f"{self.group_name}: minReplicas <= replicas <= maxReplicas does not hold")
        return self


class Autoscaler(Strict):
    version: Literal["v1", "v2"]
    idle_timeout_seconds: Natural
    security_context: ContainerSecurity


class Authentication(Strict):
    mode: Literal["disabled", "token"]


class RayClusterSpec(Strict):
    ray_version: Annotated[str, Field(pattern=r"^\d+\.\d+\.\d+$")]
    auth_options: Authentication
    enable_in_tree_autoscaling: bool
    autoscaler_options: Autoscaler
    head_group_spec: Head
    worker_group_specs: list[WorkerGroup]

    @model_validator(mode="after")
    def _version_has_tokens(self) -> "RayClusterSpec":
        version = tuple(map(int, self.ray_version.split(".")[:2]))
        if self.auth_options.mode == "token" and version < MINIMUM_OF_TOKENS:
            raise ValueError(f"Ray {self.ray_version} has no token authentication")
        return self

    def pods(self) -> list[PodSpec]:
        groups = self.worker_group_specs
        return [self.head_group_spec.template.spec, *(group.template.spec for group in groups)]


class RayJobSpec(Strict):
    entrypoint: str
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: Natural
    backoff_limit: Natural
    ray_cluster_spec: RayClusterSpec


class RayCluster(Strict):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayCluster"]
    metadata: Metadata
    spec: RayClusterSpec


class RayJob(Strict):
    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: RayJobSpec

    @model_validator(mode="after")
    def _name_is_short(self) -> "RayJob":
        """KubeRay appends to it, and names of Kubernetes have at most 63 characters."""
        if re.fullmatch(".{1,47}", self.metadata.name) is None:
            raise ValueError(f"metadata.name {self.metadata.name} is longer than 47 characters")
        return self


class StorageRequest(Strict):
    requests: dict[Literal["storage"], Quantity]


class ClaimSpec(Strict):
    storage_class_name: DnsLabel
    access_modes: list[Literal["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"]]
    resources: StorageRequest


class PersistentVolumeClaim(Strict):
    api_version: Literal["v1"]
    kind: Literal["PersistentVolumeClaim"]
    metadata: Metadata
    spec: ClaimSpec
