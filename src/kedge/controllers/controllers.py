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
from kedge.controllers.garbage_collector import GarbageCollector
from kedge.controllers.limit_ranges import LimitRangeController
from kedge.controllers.namespace import NamespaceController
from kedge.controllers.namespaces import Namespaces
from kedge.controllers.resource_quota import ResourceQuotaController
from kedge.controllers.root_ca import RootCaController
from kedge.controllers.service_account import ServiceAccountController
from kedge.controllers.service_account_tokens import ServiceAccountTokenController, Sign
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
    ) -> None:
        """`admission` names the plugins that the server enforces: some controllers go with one."""
        discovery = Discovery(client)
        known = Namespaces()
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
        ]
        if "LimitRanger" in admission:
            self._controllers.append(LimitRangeController(client, clock))

    async def run(self) -> None:
        """For ever; cancel it to stop."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._namespaces.run())
            await self._namespaces.synced.wait()
            for controller in self._controllers:
                tasks.create_task(controller.run())
