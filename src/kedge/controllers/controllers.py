"""Controllers: all of them, run together."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kedge.client.client import Client
from kedge.client.discovery import Discovery
from kedge.client.informer import Informer
from kedge.controllers import namespaces
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
from kedge.controllers.disruptions.disruption import DisruptionController
from kedge.controllers.garbage_collector import GarbageCollector
from kedge.controllers.known import Shared
from kedge.controllers.limit_ranges import LimitRangeController
from kedge.controllers.namespace import NamespaceController
from kedge.controllers.namespaces import Namespaces
from kedge.controllers.nodes.node_health import GRACE
from kedge.controllers.nodes.node_lifecycle import NodeLifecycleController
from kedge.controllers.nodes.pod_garbage_collector import PodGarbageCollector
from kedge.controllers.nodes.taint_eviction import TaintEvictionController
from kedge.controllers.resource_quota import ResourceQuotaController
from kedge.controllers.services.endpoint_slice import EndpointSliceController
from kedge.controllers.services.endpoint_slice_mirroring import EndpointSliceMirroringController
from kedge.controllers.services.endpoints import EndpointsController
from kedge.controllers.workloads.daemon_set import DaemonSetController
from kedge.controllers.workloads.deployment import DeploymentController
from kedge.controllers.workloads.replica_set import ReplicaSetController
from kedge.controllers.workloads.replication_controller import ReplicationControllerController
from kedge.controllers.workloads.stateful_set import StatefulSetController
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
            ClusterInfoController(client, clock),
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
