"""The list of controllers, run together."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Final, NamedTuple, Protocol

from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.informer import Informer
from kedge.client.object_views import ObjectViews
from kedge.controllers import names, namespaces
from kedge.controllers.access.bootstrap_token_cleaner import BootstrapTokenCleaner
from kedge.controllers.access.certificate_signing import CertificateSigningController, SignRequest
from kedge.controllers.access.cluster_info import ClusterInfoController
from kedge.controllers.access.cluster_role_aggregation import ClusterRoleAggregationController
from kedge.controllers.access.root_ca import RootCaController
from kedge.controllers.access.service_account import ServiceAccountController
from kedge.controllers.access.service_account_tokens import ServiceAccountTokenController, Sign
from kedge.controllers.autoscaling.horizontal_pod_autoscaler import (
    HorizontalPodAutoscalerController,
)
from kedge.controllers.batch.cron_job import CronJobController
from kedge.controllers.batch.job import JobController
from kedge.controllers.batch.ttl_after_finished import TtlAfterFinishedController
from kedge.controllers.devices.device_taint_eviction import DeviceTaintEvictionController
from kedge.controllers.devices.resource_claim import ResourceClaimController
from kedge.controllers.disruptions.disruption import DisruptionController
from kedge.controllers.garbage_collector import GarbageCollector
from kedge.controllers.limit_ranges import LimitRangeController
from kedge.controllers.namespace import NamespaceController
from kedge.controllers.namespaces import Namespaces
from kedge.controllers.nodes.node_health import GRACE
from kedge.controllers.nodes.node_lifecycle import NodeLifecycleController
from kedge.controllers.nodes.pod_garbage_collector import PodGarbageCollector
from kedge.controllers.nodes.taint_eviction import TaintEvictionController
from kedge.controllers.resource_quota import ResourceQuotaController
from kedge.controllers.services.allocation_repair import AllocationRepairController
from kedge.controllers.services.endpoint_slice import EndpointSliceController
from kedge.controllers.services.endpoint_slice_mirroring import EndpointSliceMirroringController
from kedge.controllers.services.endpoints import EndpointsController
from kedge.controllers.services.load_balancer import LoadBalancerController
from kedge.controllers.services.service_cidr import ServiceCidrController
from kedge.controllers.shared_informers import SharedInformers
from kedge.controllers.volumes.attach_detach import AttachDetachController
from kedge.controllers.volumes.attributes_class_protection import (
    AttributesClassProtectionController,
)
from kedge.controllers.volumes.claim_protection import ClaimProtectionController
from kedge.controllers.volumes.ephemeral_volume import EphemeralVolumeController
from kedge.controllers.volumes.expansion import VolumeExpander
from kedge.controllers.volumes.persistent_volume_binder import PersistentVolumeBinder
from kedge.controllers.volumes.volume_protection import VolumeProtectionController
from kedge.controllers.workloads.daemon_set import DaemonSetController
from kedge.controllers.workloads.deployment import DeploymentController
from kedge.controllers.workloads.replica_set import ReplicaSetController
from kedge.controllers.workloads.replication_controller import ReplicationControllerController
from kedge.controllers.workloads.stateful_set import StatefulSetController
from kedge.machinery.clock import Clock, heartbeat_clock, machine_clock
from kedge.settings.service_defaults import LOAD_BALANCER_NETWORK, NODE_PORTS


class Controller(Protocol):
    """A controller."""

    async def run(self) -> None:
        """For ever."""
        ...


class ControllerContext(NamedTuple):
    """The dependencies of all controllers."""

    client: Client
    clock: Clock
    shared: SharedInformers
    discovery: Discovery
    known: Namespaces
    ca_pem: bytes
    sign: Sign
    sign_request: SignRequest
    node_grace: float = GRACE
    node_ports: range = NODE_PORTS
    load_balancers: str = LOAD_BALANCER_NETWORK
    """The network of the addresses of load balancers."""


ControllerMaker = Callable[[ControllerContext], Controller]


def _sharing(make: Callable[[Client, SharedInformers, Clock], Controller]) -> ControllerMaker:
    return lambda given: make(given.client, given.shared, given.clock)


MAKERS: Final[Mapping[str, ControllerMaker]] = {
    "namespace-controller": lambda given: NamespaceController(
        given.client, given.discovery, given.known, given.clock
    ),
    "serviceaccount-controller": lambda given: ServiceAccountController(
        given.client, given.known, given.clock
    ),
    "root-ca-certificate-publisher-controller": lambda given: RootCaController(
        given.client, given.known, given.ca_pem, given.clock
    ),
    "serviceaccount-token-controller": lambda given: ServiceAccountTokenController(
        given.client, given.sign, given.ca_pem, given.clock
    ),
    "certificatesigningrequest-signing-controller": lambda given: CertificateSigningController(
        given.client, given.sign_request, machine_clock(given.clock)
    ),
    "cluster-info-controller": lambda given: ClusterInfoController(given.client, given.clock),
    "bootstrap-token-cleaner-controller": lambda given: BootstrapTokenCleaner(
        given.client, given.clock
    ),
    "clusterrole-aggregation-controller": lambda given: ClusterRoleAggregationController(
        given.client, given.clock
    ),
    "resourcequota-controller": lambda given: ResourceQuotaController(
        given.client, given.discovery, given.clock
    ),
    "resourceclaim-controller": _sharing(ResourceClaimController),
    "device-taint-eviction-controller": _sharing(DeviceTaintEvictionController),
    "persistentvolume-binder-controller": _sharing(PersistentVolumeBinder),
    "persistentvolumeclaim-protection-controller": _sharing(ClaimProtectionController),
    "persistentvolume-protection-controller": _sharing(VolumeProtectionController),
    "volumeattributesclass-protection-controller": _sharing(AttributesClassProtectionController),
    "ephemeral-volume-controller": _sharing(EphemeralVolumeController),
    "persistentvolume-expander-controller": _sharing(VolumeExpander),
    "persistentvolume-attach-detach-controller": _sharing(AttachDetachController),
    "garbage-collector-controller": lambda given: GarbageCollector(
        given.client, given.discovery, given.clock
    ),
    "job-controller": _sharing(JobController),
    "cronjob-controller": _sharing(CronJobController),
    "ttl-after-finished-controller": _sharing(TtlAfterFinishedController),
    "pod-garbage-collector-controller": _sharing(PodGarbageCollector),
    "replicaset-controller": _sharing(ReplicaSetController),
    "replicationcontroller-controller": _sharing(ReplicationControllerController),
    "deployment-controller": _sharing(DeploymentController),
    "statefulset-controller": _sharing(StatefulSetController),
    "daemonset-controller": _sharing(DaemonSetController),
    "horizontal-pod-autoscaler-controller": _sharing(HorizontalPodAutoscalerController),
    "disruption-controller": _sharing(DisruptionController),
    "node-lifecycle-controller": lambda given: NodeLifecycleController(
        given.client, given.shared, heartbeat_clock(given.clock), grace=given.node_grace
    ),
    "taint-eviction-controller": _sharing(TaintEvictionController),
    "endpointslice-controller": _sharing(EndpointSliceController),
    "endpoints-controller": _sharing(EndpointsController),
    "service-cidr-controller": _sharing(ServiceCidrController),
    "ipallocator-repair-controller": lambda given: AllocationRepairController(
        given.client, given.shared, given.clock, given.node_ports
    ),
    "service-lb-controller": lambda given: LoadBalancerController(
        given.client, given.shared, given.clock, IPv4Network(given.load_balancers)
    ),
    "endpointslice-mirroring-controller": _sharing(EndpointSliceMirroringController),
}
"""The controllers of every server, by name."""

ADMISSION_MAKERS: Final[Mapping[str, tuple[str, ControllerMaker]]] = {
    "LimitRanger": (
        "limitrange-controller",
        lambda given: LimitRangeController(given.client, given.clock),
    ),
}
"""The controllers that run only beside an admission plugin."""


class Controllers:
    """Runs all enabled controllers on an API client; start it after the API server."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ca_pem: bytes,
        sign: Sign,
        sign_request: SignRequest,
        *,
        admission: Sequence[str] = (),
        enabled: Collection[str] = names.ALL,
        node_grace: float = GRACE,
        node_ports: range = NODE_PORTS,
        load_balancers: str = LOAD_BALANCER_NETWORK,
        views: ObjectViews | None = None,
    ) -> None:
        """`admission` names the plugins that the server enforces: some controllers belong to
        one. `enabled` names the controllers to run; `load_balancers` is the network of their
        addresses; `views` share decoded objects with other informers of the process."""
        known = Namespaces()
        self._shared = SharedInformers(client, clock, views)
        self._namespaces = Informer(client, namespaces.view(), known, clock)
        context = ControllerContext(
            client,
            clock,
            self._shared,
            Discovery(client),
            known,
            ca_pem,
            sign,
            sign_request,
            node_grace,
            node_ports,
            load_balancers,
        )
        makers = [
            *MAKERS.items(),
            *(ADMISSION_MAKERS[p] for p in admission if p in ADMISSION_MAKERS),
        ]
        # A disabled controller is not constructed, so its informers do not run either.
        self._controllers = [make(context) for name, make in makers if name in enabled]
        self._has_synced = False

    def failure(self) -> str:
        """Return why the controllers do not work; empty once they do."""
        return "" if self._has_synced else "informers have not synced"

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            tasks.create_task(self._shared.run())
            await self._namespaces.synced.wait()
            await self._shared.synced()
            self._has_synced = True
            for controller in self._controllers:
                tasks.create_task(controller.run())
