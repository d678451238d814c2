"""The catalog: the explicit list of all Resources, and where a kind is looked up."""

from collections.abc import Iterable, Iterator
from typing import Any

from kedge.api.apiextensions_v1 import custom_resource_definition
from kedge.api.apps_v1 import (
    controller_revision,
    daemon_set,
    deployment,
    replica_set,
    stateful_set,
)
from kedge.api.autoscaling_v1 import horizontal_pod_autoscaler as hpa_v1
from kedge.api.autoscaling_v2 import horizontal_pod_autoscaler as hpa_v2
from kedge.api.batch_v1 import cron_job, job
from kedge.api.builtin.resources import RESOURCES, REVIEWS
from kedge.api.coordination_v1 import lease
from kedge.api.core_v1 import (
    config_map,
    endpoints,
    event,
    limit_range,
    namespace,
    node,
    persistent_volume_claim,
    pod_template,
    replication_controller,
    resource_quota,
    secret,
    service,
    service_account,
)
from kedge.api.core_v1.pod import pod
from kedge.api.discovery_v1 import endpoint_slice
from kedge.api.events_v1 import event as events_v1_event
from kedge.api.metrics_v1 import usage as usage_v1
from kedge.api.metrics_v1alpha1 import aggregate
from kedge.api.metrics_v1alpha1 import node as node_metrics
from kedge.api.metrics_v1alpha1 import persistent_volume_claim as claim_metrics
from kedge.api.metrics_v1alpha1 import pod as pod_metrics
from kedge.api.metrics_v1beta1 import usage as usage_v1beta1
from kedge.api.policy_v1 import pod_disruption_budget
from kedge.api.rbac_v1 import cluster_role, cluster_role_binding, role, role_binding
from kedge.api.resource import Resource
from kedge.api.resource_v1 import (
    device_class,
    resource_claim,
    resource_claim_template,
    resource_slice,
)
from kedge.api.scheduling_kedge_v1alpha1 import scheduling_decision
from kedge.api.scheduling_v1 import priority_class

HAND_WRITTEN: tuple[Resource[Any], ...] = (
    config_map.RESOURCE,
    endpoints.RESOURCE,
    event.RESOURCE,
    limit_range.RESOURCE,
    namespace.RESOURCE,
    node.RESOURCE,
    persistent_volume_claim.RESOURCE,
    pod.RESOURCE,
    pod_template.RESOURCE,
    replication_controller.RESOURCE,
    resource_quota.RESOURCE,
    secret.RESOURCE,
    service.RESOURCE,
    service_account.RESOURCE,
    controller_revision.RESOURCE,
    daemon_set.RESOURCE,
    deployment.RESOURCE,
    replica_set.RESOURCE,
    stateful_set.RESOURCE,
    hpa_v2.RESOURCE,
    hpa_v1.RESOURCE,
    cron_job.RESOURCE,
    job.RESOURCE,
    lease.RESOURCE,
    endpoint_slice.RESOURCE,
    events_v1_event.RESOURCE,
    pod_disruption_budget.RESOURCE,
    cluster_role.RESOURCE,
    cluster_role_binding.RESOURCE,
    role.RESOURCE,
    role_binding.RESOURCE,
    priority_class.RESOURCE,
    device_class.RESOURCE,
    resource_claim.RESOURCE,
    resource_claim_template.RESOURCE,
    resource_slice.RESOURCE,
    custom_resource_definition.RESOURCE,
)
"""Kinds that kedge acts on."""

NOT_STORED: tuple[Resource[Any], ...] = (
    node_metrics.RESOURCE,
    pod_metrics.RESOURCE,
    claim_metrics.RESOURCE,
    *aggregate.RESOURCES,
    usage_v1.NODES,
    usage_v1.PODS,
    usage_v1beta1.NODES,
    usage_v1beta1.PODS,
    scheduling_decision.RESOURCE,
)
"""Kinds that are not stored: nodes report their usage, the scheduler remembers its decisions."""

BUILT_IN: tuple[Resource[Any], ...] = (*HAND_WRITTEN, *NOT_STORED, *RESOURCES, *REVIEWS)
KUBE_APISERVER: tuple[Resource[Any], ...] = (*HAND_WRITTEN, *RESOURCES, *REVIEWS)
"""The kinds that a kube-apiserver serves by itself."""


class Catalog:
    """The served resources; custom ones are added and removed."""

    def __init__(
        self, resources: Iterable[Resource[Any]] = BUILT_IN, *, upstream_only: bool = False
    ) -> None:
        self.upstream_only = upstream_only
        """Whether kinds are served without kedge's extensions."""
        self._resources: dict[tuple[str, str, str], Resource[Any]] = {}
        self._versions: dict[tuple[str, str], int] = {}
        self._stamps: dict[tuple[str, str], int] = {}
        self.changes = 0
        """Counts additions and removals, so that what is derived can tell when to be made anew."""
        for resource in resources:
            self.add(resource.upstream() if upstream_only else resource)
        self._built_in = frozenset(group for group, _, _ in self._resources)

    def __iter__(self) -> Iterator[Resource[Any]]:
        return iter(self._resources.values())

    def add(self, resource: Resource[Any]) -> None:
        self.changes += 1
        key = (resource.group, resource.version, resource.plural)
        self._stamps[key[:2]] = self.changes
        if key not in self._resources:
            version = key[:2]
            self._versions[version] = self._versions.get(version, 0) + 1
        self._resources[key] = resource

    def remove(self, resource: Resource[Any]) -> None:
        key = (resource.group, resource.version, resource.plural)
        if self._resources.pop(key, None) is not None:
            self.changes += 1
            version = key[:2]
            self._stamps[version] = self.changes
            self._versions[version] -= 1
            if not self._versions[version]:
                del self._versions[version], self._stamps[version]

    def find(self, group: str, version: str, plural: str) -> Resource[Any] | None:
        return self._resources.get((group, version, plural))

    def has_built_in(self, group: str) -> bool:
        """Whether a group has kinds from the start."""
        return group in self._built_in

    def has_version(self, group: str, version: str) -> bool:
        return (group, version) in self._versions

    def stamp(self, group: str, version: str) -> int:
        """Changes whenever a resource of this version comes, goes or is redefined."""
        return self._stamps.get((group, version), 0)

    def of_kind(self, api_version: str, kind: str) -> Resource[Any] | None:
        """The resource whose objects say `apiVersion` and `kind`."""
        for resource in self._resources.values():
            if resource.kind == kind and resource.api_version == api_version:
                return resource
        return None
