"""The list of controllers, run together."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from ipaddress import IPv4Network
from typing import Protocol

from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.informer import Informer
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
from kedge.machinery.clock import Clock
from kedge.settings.service_defaults import LOAD_BALANCER_NETWORK, NODE_PORTS


class Controller(Protocol):
    """A controller."""

    async def run(self) -> None:
        """For ever."""
        ...


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
    ) -> None:
        """`admission` names the plugins that the server enforces: some controllers belong to
        one. `enabled` names the controllers to run; `load_balancers` is the network of their
        addresses."""
        discovery = Discovery(client)
        known = Namespaces()
        self._shared = SharedInformers(client, clock)
        self._namespaces = Informer(client, namespaces.view(), known, clock)
        shared = self._shared
        makers: dict[str, Callable[[], Controller]] = {
            "namespace-controller": lambda: NamespaceController(client, discovery, known, clock),
            "serviceaccount-controller": lambda: ServiceAccountController(client, known, clock),
            "root-ca-certificate-publisher-controller": lambda: RootCaController(
                client, known, ca_pem, clock
            ),
            "serviceaccount-token-controller": lambda: ServiceAccountTokenController(
                client, sign, ca_pem, clock
            ),
            "certificatesigningrequest-signing-controller": lambda: CertificateSigningController(
                client, sign_request, clock
            ),
            "cluster-info-controller": lambda: ClusterInfoController(client, clock),
            "bootstrap-token-cleaner-controller": lambda: BootstrapTokenCleaner(client, clock),
            "clusterrole-aggregation-controller": lambda: ClusterRoleAggregationController(
                client, clock
            ),
            "resourcequota-controller": lambda: ResourceQuotaController(client, discovery, clock),
            "resourceclaim-controller": lambda: ResourceClaimController(client, shared, clock),
            "device-taint-eviction-controller": lambda: DeviceTaintEvictionController(
                client, shared, clock
            ),
            "persistentvolume-binder-controller": lambda: PersistentVolumeBinder(
                client, shared, clock
            ),
            "persistentvolumeclaim-protection-controller": lambda: ClaimProtectionController(
                client, shared, clock
            ),
            "persistentvolume-protection-controller": lambda: VolumeProtectionController(
                client, shared, clock
            ),
            "volumeattributesclass-protection-controller": lambda: (
                AttributesClassProtectionController(client, shared, clock)
            ),
            "ephemeral-volume-controller": lambda: EphemeralVolumeController(client, shared, clock),
            "persistentvolume-expander-controller": lambda: VolumeExpander(client, shared, clock),
            "persistentvolume-attach-detach-controller": lambda: AttachDetachController(
                client, shared, clock
            ),
            "garbage-collector-controller": lambda: GarbageCollector(client, discovery, clock),
            "job-controller": lambda: JobController(client, shared, clock),
            "cronjob-controller": lambda: CronJobController(client, shared, clock),
            "ttl-after-finished-controller": lambda: TtlAfterFinishedController(
                client, shared, clock
            ),
            "pod-garbage-collector-controller": lambda: PodGarbageCollector(client, shared, clock),
            "replicaset-controller": lambda: ReplicaSetController(client, shared, clock),
            "replicationcontroller-controller": lambda: ReplicationControllerController(
                client, shared, clock
            ),
            "deployment-controller": lambda: DeploymentController(client, shared, clock),
            "statefulset-controller": lambda: StatefulSetController(client, shared, clock),
            "daemonset-controller": lambda: DaemonSetController(client, shared, clock),
            "horizontal-pod-autoscaler-controller": lambda: HorizontalPodAutoscalerController(
                client, shared, clock
            ),
            "disruption-controller": lambda: DisruptionController(client, shared, clock),
            "node-lifecycle-controller": lambda: NodeLifecycleController(
                client, shared, clock, grace=node_grace
            ),
            "taint-eviction-controller": lambda: TaintEvictionController(client, shared, clock),
            "endpointslice-controller": lambda: EndpointSliceController(client, shared, clock),
            "endpoints-controller": lambda: EndpointsController(client, shared, clock),
            "service-cidr-controller": lambda: ServiceCidrController(client, shared, clock),
            "ipallocator-repair-controller": lambda: AllocationRepairController(
                client, shared, clock, node_ports
            ),
            "service-lb-controller": lambda: LoadBalancerController(
                client, shared, clock, IPv4Network(load_balancers)
            ),
            "endpointslice-mirroring-controller": lambda: EndpointSliceMirroringController(
                client, shared, clock
            ),
        }
        if "LimitRanger" in admission:
            makers["limitrange-controller"] = lambda: LimitRangeController(client, clock)
        # A disabled controller is not constructed, so its informers do not run either.
        self._controllers = [make() for name, make in makers.items() if name in enabled]
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
