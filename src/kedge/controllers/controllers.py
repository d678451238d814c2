"""Controllers: all of them, run together."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.informer import Informer
from kedge.controllers import namespaces
from kedge.controllers.certificate_signing import CertificateSigningController, SignRequest
from kedge.controllers.cluster_role_aggregation import ClusterRoleAggregationController
from kedge.controllers.cron_job import CronJobController
from kedge.controllers.daemon_set import DaemonSetController
from kedge.controllers.deployment import DeploymentController
from kedge.controllers.disruption import DisruptionController
from kedge.controllers.endpoint_slice import EndpointSliceController
from kedge.controllers.endpoint_slice_mirroring import EndpointSliceMirroringController
from kedge.controllers.endpoints import EndpointsController
from kedge.controllers.garbage_collector import GarbageCollector
from kedge.controllers.horizontal_pod_autoscaler import HorizontalPodAutoscalerController
from kedge.controllers.job import JobController
from kedge.controllers.known import Shared
from kedge.controllers.limit_ranges import LimitRangeController
from kedge.controllers.namespace import NamespaceController
from kedge.controllers.namespaces import Namespaces
from kedge.controllers.node_health import GRACE
from kedge.controllers.node_lifecycle import NodeLifecycleController
from kedge.controllers.pod_garbage_collector import PodGarbageCollector
from kedge.controllers.replica_set import ReplicaSetController
from kedge.controllers.replication_controller import ReplicationControllerController
from kedge.controllers.resource_quota import ResourceQuotaController
from kedge.controllers.root_ca import RootCaController
from kedge.controllers.service_account import ServiceAccountController
from kedge.controllers.service_account_tokens import ServiceAccountTokenController, Sign
from kedge.controllers.stateful_set import StatefulSetController
from kedge.controllers.taint_eviction import TaintEvictionController
from kedge.controllers.ttl_after_finished import TtlAfterFinishedController
from kedge.machinery.clock import Clock


class Controller(Protocol):
    """One of them."""

    async def run(self) -> None:
        """For ever."""
        ...


class Controllers:
    """Keep a cluster in order, seen only through its API. To be run once the server answers."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ca_pem: bytes,
        sign: Sign,
        sign_request: SignRequest,
        *,
        admission: Sequence[str] = (),
        node_grace: float = GRACE,
    ) -> None:
        """`admission` names the plugins that the server enforces: some controllers go with one."""
        discovery = Discovery(client)
        known = Namespaces()
        self._shared = Shared(client, clock)
        self._namespaces = Informer(client, namespaces.view(), known, clock)
        self._controllers: list[Controller] = [
            NamespaceController(client, discovery, known, clock),
            ServiceAccountController(client, known, clock),
            RootCaController(client, known, ca_pem, clock),
            ServiceAccountTokenController(client, sign, ca_pem, clock),
            CertificateSigningController(client, sign_request, clock),
            ClusterRoleAggregationController(client, clock),
            ResourceQuotaController(client, discovery, clock),
            GarbageCollector(client, discovery, clock),
            JobController(client, self._shared, clock),
            CronJobController(client, self._shared, clock),
            TtlAfterFinishedController(client, self._shared, clock),
            PodGarbageCollector(client, self._shared, clock),
            ReplicaSetController(client, self._shared, clock),
            ReplicationControllerController(client, self._shared, clock),
            DeploymentController(client, self._shared, clock),
            StatefulSetController(client, self._shared, clock),
            DaemonSetController(client, self._shared, clock),
            HorizontalPodAutoscalerController(client, self._shared, clock),
            DisruptionController(client, self._shared, clock),
            NodeLifecycleController(client, self._shared, clock, grace=node_grace),
            TaintEvictionController(client, self._shared, clock),
            EndpointSliceController(client, self._shared, clock),
            EndpointsController(client, self._shared, clock),
            EndpointSliceMirroringController(client, self._shared, clock),
        ]
        if "LimitRanger" in admission:
            self._controllers.append(LimitRangeController(client, clock))

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            tasks.create_task(self._shared.run())
            await self._namespaces.synced.wait()
            await self._shared.synced()
            for controller in self._controllers:
                tasks.create_task(controller.run())
