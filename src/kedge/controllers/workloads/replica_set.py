"""ReplicaSets: each keeps a number of identical pods running."""

from msgspec.structs import replace

from kedge.api.apps_v1.replica_set import RESOURCE, ReplicaSet, ReplicaSetCondition
from kedge.api.label_selector import compiled
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


def size(obj: ReplicaSet) -> int:
    return obj.spec.replicas or 0


def demand(obj: ReplicaSet) -> ReplicaDemand:
    spec = obj.spec
    return ReplicaDemand(size(obj), compiled(spec.selector), spec.template, spec.minReadySeconds)


def with_status(
    obj: ReplicaSet, counts: ReplicaCounts, failure: ReplicaFailure | None, now: str
) -> ReplicaSet:
    conditions = failing(obj.status.conditions, ReplicaSetCondition, failure, now)
    status = recounted(obj.status, counts, obj.metadata.generation, conditions)
    return replace(obj, status=replace(status, terminatingReplicas=counts.terminating))


class ReplicaSetController(ReplicasController[ReplicaSet]):
    """Creates and deletes the pods of ReplicaSets."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        kind = ReplicaOwnerKind(RESOURCE, "replicaset-controller", size, demand, with_status)
        super().__init__(client, shared, clock, kind)
