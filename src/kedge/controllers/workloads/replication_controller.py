"""ReplicationControllers: what ReplicaSets were before they had that name."""

from msgspec.structs import replace

from kedge.api.core_v1.pod.spec import PodTemplateSpec
from kedge.api.core_v1.replication_controller import (
    RESOURCE,
    ReplicationController,
    ReplicationControllerCondition,
)
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
from kedge.machinery.selectors import LabelSelector, Requirement


def wanted(obj: ReplicationController) -> Wanted:
    spec = obj.spec
    selector = LabelSelector(Requirement(k, "=", (v,)) for k, v in spec.selector.items())
    template = spec.template or PodTemplateSpec()
    return Wanted(spec.replicas or 0, selector, template, spec.minReadySeconds)


def told(
    obj: ReplicationController, counts: Tally, failure: Failure | None, now: str
) -> ReplicationController:
    conditions = failing(obj.status.conditions, ReplicationControllerCondition, failure, now)
    return replace(obj, status=recounted(obj.status, counts, obj.metadata.generation, conditions))


class ReplicationControllerController(Replicas[ReplicationController]):
    """Makes and deletes the pods of ReplicationControllers."""

    def __init__(self, client: Client, shared: Shared, clock: Clock) -> None:
        kind = Kind(RESOURCE, "replication-controller", wanted, told)
        super().__init__(client, shared, clock, kind)
