"""ReplicaSets: each keeps a number of like pods running."""

from msgspec.structs import replace

from kedge.api.apps_v1.replica_set import RESOURCE, ReplicaSet, ReplicaSetCondition
from kedge.api.label_selector import compiled
from kedge.client.client import Client
from kedge.controllers.shared_informers import Shared
from kedge.controllers.workloads.replicas import (
    Failure,
    Kind,
    Replicas,
    Tally,
    Wanted,
    failing,
    recounted,
)
from kedge.machinery.clock import Clock


def wanted(obj: ReplicaSet) -> Wanted:
    spec = obj.spec
    return Wanted(spec.replicas or 0, compiled(spec.selector), spec.template, spec.minReadySeconds)


def told(obj: ReplicaSet, counts: Tally, failure: Failure | None, now: str) -> ReplicaSet:
    conditions = failing(obj.status.conditions, ReplicaSetCondition, failure, now)
    status = recounted(obj.status, counts, obj.metadata.generation, conditions)
    return replace(obj, status=replace(status, terminatingReplicas=counts.terminating))


class ReplicaSetController(Replicas[ReplicaSet]):
    """Makes and deletes the pods of ReplicaSets."""

    def __init__(self, client: Client, shared: Shared, clock: Clock) -> None:
        kind = Kind(RESOURCE, "replicaset-controller", wanted, told)
        super().__init__(client, shared, clock, kind)
