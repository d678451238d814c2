"""A scripted driver, and the resource claims of a node for it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.api.resource_v1 import resource_claim
from kedge.api.resource_v1.resource_claim import ResourceClaim
from kedge.client.client import Client
from kedge.dra import (
    AllocatedClaim,
    ClaimReference,
    Device,
    DeviceHealth,
    DeviceIdentifier,
    Driver,
    PreparedDevice,
)
from kedge.node.devices.devices import NodeDevices
from kedge.node.pod.dependencies import ConfigFailure, ContainerEnvironment
from kedge.node.resource_claims.claims import NodeClaims
from kedge.testing.device_plugin import StageTasks
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document

DRIVER_NAME = "gadget.example.com"
NODE_NAME = "node"


class ScriptedDriver(Driver):
    """Records calls; responds, fails and hangs as the test scripts it."""

    def __init__(
        self,
        client: Client,
        name: str = DRIVER_NAME,
        ids: Sequence[str] = ("g-0", "g-1"),
        *,
        wants_environment: bool = False,
    ) -> None:
        super().__init__(name, node=NODE_NAME, client=client)
        self.wants_environment = wants_environment
        self.offered = [Device(name=each) for each in ids]
        self.reported: dict[str, int] = {}
        self.failures: dict[str, Exception] = {}
        """By method: what it fails with."""
        self.gates: dict[str, asyncio.Event] = {}
        """By method: what it waits for."""
        self.calls: list[tuple[str, str]] = []
        """Method and name of the claim."""
        self.claims: list[AllocatedClaim] = []
        """The claims of `prepare`."""
        self.answer: Sequence[PreparedDevice] | None = None

    def devices(self) -> Sequence[Device]:
        return self.offered

    async def prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice]:
        self.claims.append(claim)
        await self._called("prepare", claim.name)
        if self.answer is not None:
            return self.answer
        return [
            PreparedDevice(
                request_names=[each.request],
                pool_name=each.pool,
                device_name=each.device,
                cdi_device_ids=[f"{self.name}/claim={each.device}"],
            )
            for each in claim.devices
        ]

    async def unprepare(self, claim: ClaimReference) -> None:
        await self._called("unprepare", claim.name)

    def health(self) -> Sequence[DeviceHealth]:
        return [
            DeviceHealth(
                device=DeviceIdentifier(pool_name=NODE_NAME, device_name=device), health=health
            )
            for device, health in self.reported.items()
        ]

    async def _called(self, method: str, claim: str) -> None:
        self.calls.append((method, claim))
        if method in self.gates:
            await self.gates[method].wait()
        if method in self.failures:
            raise self.failures[method]


class ScriptedEnvironment:
    """Fulfils dependencies.EnvironmentResolver with the same variables for all containers."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {"A": "1"}
        self.failure = ""

    async def environment(
        self, pod: Pod, container: Container, pod_ips: Sequence[str]
    ) -> ContainerEnvironment:
        if self.failure:
            raise ConfigFailure(self.failure)
        return ContainerEnvironment(self.variables | {"CONTAINER": container.name})


class ScriptedAccess:
    """Fulfils dependencies.DeviceAccessCheck; refuses with a message if there is one."""

    def __init__(self) -> None:
        self.refusal = ""

    async def check(self, pod: Pod, container: Container, env: Mapping[str, str]) -> None:
        if self.refusal:
            raise ConfigFailure(self.refusal)


class RecordedRemovals:
    """Fulfils slice_removal.SliceRemoval; records the drivers."""

    def __init__(self) -> None:
        self.drivers: list[str] = []

    async def remove(self, driver: str = "") -> None:
        self.drivers.append(driver)


class ClaimStage(StageTasks):
    """The resource claims of a node, and drivers that register and stop."""

    def __init__(self, server: LocalServer, directory: Path) -> None:
        super().__init__(server.clock)
        self.server = server
        self.directory = directory / "kubelet"
        self.own = directory / "own"
        self.environment = ScriptedEnvironment()
        self.access = ScriptedAccess()
        self.removals = RecordedRemovals()
        self.pods_told: list[str] = []
        self.pods: list[Pod] = []
        self.devices: NodeDevices
        self.claims: NodeClaims

    # The agent.

    async def begin(self) -> NodeClaims:
        """The agent begins, for the first time or again."""
        self.claims = NodeClaims(
            self.own,
            self.server.client,
            self.clock,
            slices=self.removals,
            environment=self.environment,
            access=self.access,
            pod_changed=self.pods_told.append,
        )
        self.devices = NodeDevices(self.directory / "device-plugins", self.own, self.clock)
        self.devices.connect(
            lambda: None, lambda uid: None, lambda: self.pods, lambda uid: True, self.claims
        )
        self._run(self.claims, self.claims.run())
        self._run(self.devices, self.devices.run())
        await self.passing((self.directory / "plugins_registry").exists)
        return self.claims

    async def end(self) -> None:
        """The agent dies."""
        await self._stop(self.devices)
        await self._stop(self.claims)

    # Drivers.

    async def plug(self, driver: ScriptedDriver, *, wait: bool = True) -> ScriptedDriver:
        """A driver begins."""
        self._run(driver, driver.serve(self.directory))
        if wait:
            await self.passing(lambda: self._is_usable(driver))
        return driver

    def _is_usable(self, driver: ScriptedDriver) -> bool:
        # The driver learns of its registration before the agent has its response. Time that passes
        # in between would be the driver's delay.
        confirmed = {path.name for path in self.devices.watcher.registered}
        instances = self.claims.drivers._instances.get(driver.name, ())
        return f"{driver.name}-reg.sock" in confirmed and any(
            each.is_connected for each in instances
        )

    async def unplug(self, driver: ScriptedDriver) -> None:
        """It ends, and its sockets with it."""
        await self.unplug_sockets(driver)
        await self.passing(lambda: driver.name not in self.claims.drivers._instances)

    async def unplug_sockets(self, driver: ScriptedDriver) -> None:
        """It ends; other instances may remain."""
        client = self.claims.drivers.driver(driver.name)
        await self._stop(driver)
        await self.passing(lambda: client.stopped)

    # Objects.

    async def claim(
        self,
        name: str,
        *pods: Pod,
        results: Sequence[Mapping[str, str]] = ({},),
        owner: Pod | None = None,
        config: Sequence[Mapping[str, Any]] = (),
    ) -> ResourceClaim:
        """Create a claim that is allocated and reserved for pods."""
        references = (
            [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": owner.metadata.name,
                    "uid": owner.metadata.uid,
                    "controller": True,
                }
            ]
            if owner is not None
            else []
        )
        default = {
            "request": "r",
            "driver": DRIVER_NAME,
            "pool": NODE_NAME,
            "device": "g-0",
        }
        found = [default | dict(each) for each in results]
        requests = dict.fromkeys(each["request"] for each in found)
        document = {
            "metadata": {"name": name, "namespace": "default", "ownerReferences": references},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": each, "exactly": {"deviceClassName": "any"}} for each in requests
                    ]
                }
            },
            "status": {
                "allocation": {"devices": {"results": found, "config": list(config)}},
                "reservedFor": [
                    {"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid}
                    for pod in pods
                ],
            },
        }
        client, resource = self.server.client, resource_claim.RESOURCE
        wanted = resource.from_document(document)
        made = await client.create(resource, wanted)
        changed = resource.from_document(
            resource.to_document(made) | {"status": document["status"]}
        )
        return await client.update(resource, changed, subresource="status")

    # Time.


@contextlib.asynccontextmanager
async def claim_stage(directory: Path) -> AsyncIterator[ClaimStage]:
    async with LocalServer.running() as server:
        stage = ClaimStage(server, directory)
        try:
            yield stage
        finally:
            await stage.close()


def pod_using(*claims: str, uid: str = "u", requests: Sequence[str] = (), **metadata: Any) -> Pod:
    """A pod whose containers c0, c1, ... use one request of the first claim each; without requests
    one container uses all claims."""
    used: list[list[dict[str, str]]] = [
        [{"name": claims[0], "request": request}] for request in requests
    ] or [[{"name": claim} for claim in claims]]
    document = pod_document(
        metadata={"name": f"pod-{uid}", "namespace": "default", "uid": uid} | metadata,
        spec={
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            "containers": [
                {"name": f"c{i}", "image": "i", "resources": {"claims": each}}
                for i, each in enumerate(used)
            ],
        },
    )
    return RESOURCE.from_document(document)
