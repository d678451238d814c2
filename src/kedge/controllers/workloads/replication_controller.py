"""ReplicationControllers: the predecessors of ReplicaSets."""

from msgspec.structs import replace

from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.replication_controller import (
    RESOURCE,
    ReplicationController,
    ReplicationControllerCondition,
)
from kedge.client.client import Client
from kedge.controllers.shared_informers import SharedInformers
from kedge.controllers.workloads.replicas import (
    ReplicaCounts,
    ReplicaDemand,
    ReplicaFailure,
    ReplicaOwnerKind,
    ReplicasController,
    failing,
    recounted,
)
from kedge.machinery.clock import Clock
from kedge.machinery.selectors import LabelRequirements, Requirement


def size(obj: ReplicationController) -> int:
    return obj.spec.replicas or 0


def demand(obj: ReplicationController) -> ReplicaDemand:
    spec = obj.spec
    selector = LabelRequirements(Requirement(k, "=", (v,)) for k, v in spec.selector.items())
    template = spec.template or PodTemplateSpec()
    return ReplicaDemand(size(obj), selector, template, spec.minReadySeconds)


def with_status(
    obj: ReplicationController, counts: ReplicaCounts, failure: ReplicaFailure | None, now: str
) -> ReplicationController:
    conditions = failing(obj.status.conditions, ReplicationControllerCondition, failure, now)
    return replace(obj, status=recounted(obj.status, counts, obj.metadata.generation, conditions))


class ReplicationControllerController(ReplicasController[ReplicationController]):
    """Creates and deletes the pods of ReplicationControllers."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        kind = ReplicaOwnerKind(RESOURCE, "replication-controller", size, demand, with_status)
        super().__init__(client, shared, clock, kind)
