"""DriverBench: a fake kubelet and a real API server for a driver."""

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import Node
from kedge.api.model import ObjectMeta
from kedge.api.resource_v1 import resource_claim, resource_slice
from kedge.api.resource_v1.resource_slice import ResourceSlice
from kedge.client import login
from kedge.client.client import Client
from kedge.deviceplugin import library
from kedge.deviceplugin import methods as calls
from kedge.deviceplugin.check.bench import CallRejected, DirectoryInUse, call
from kedge.deviceplugin.check.program import CheckedProgram
from kedge.deviceplugin.messages import Empty, PluginInfo, RegistrationStatus
from kedge.deviceplugin.sockets import answers
from kedge.dra import messages as m
from kedge.dra.methods import SERVICES, DriverMethods
from kedge.machinery.clock import Clock

NODE: Final = "check"
_STEP: Final = 0.05
_SERVER_SECONDS: Final = 60


class DriverBench(msgspec.Struct):
    """A directory for sockets, a server for claims and slices, and the driver that registered."""

    directory: Path
    clock: Clock
    patience: float
    """Seconds in which a driver must have registered."""
    parameters: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Opaque parameters of claims, if the driver needs any."""
    command: Sequence[str] = ()
    """The command that starts the driver; empty if it is started by hand."""
    ready: Callable[[], None] = lambda: None
    """Called once the server runs, so that the driver can be started."""
    info: PluginInfo = msgspec.field(default_factory=PluginInfo)
    """The latest answer to GetInfo."""
    _program: CheckedProgram = msgspec.field(default_factory=CheckedProgram)
    _state: tempfile.TemporaryDirectory[str] | None = None
    _client: Client | None = None
    _claims: int = 0

    # The cluster.

    async def open(self) -> None:
        """Begin to serve. Raises DirectoryInUse or OSError."""
        await asyncio.to_thread(library.load)
        self.registry.mkdir(parents=True, exist_ok=True)
        for socket in self.sockets():
            if answers(socket):
                raise DirectoryInUse(
                    f"another driver listens at {socket}: stop it, or choose another directory"
                )
            socket.unlink()
        self._state = tempfile.TemporaryDirectory(prefix="kedge-check-")
        await asyncio.to_thread(self._kedge, "up", "--nodes=0", "--port=0")
        try:
            self._client = login.read([self.kubeconfig]).client("kedge-device-check")
            await self.client.create(node.RESOURCE, Node(metadata=ObjectMeta(name=NODE)))
        except BaseException:
            await self.close()
            raise
        self.ready()

    async def close(self) -> None:
        await self.stop()
        if self._client is not None:
            await self._client.close()
        if self._state is not None:
            await asyncio.to_thread(self._kedge, "down", "--purge")
            self._state.cleanup()

    def _kedge(self, command: str, *flags: str) -> None:
        state = self.kubeconfig.parent
        where = [f"--name=check-{os.getpid()}", f"--state={state / 'state'}"]
        if command == "up":
            where.append(f"--kubeconfig={self.kubeconfig}")
        done = subprocess.run(
            [sys.executable, "-m", "kedge", command, *where, *flags],
            capture_output=True,
            text=True,
            timeout=_SERVER_SECONDS,
            check=False,
        )
        if done.returncode:
            raise OSError(0, f"no API server for the check: {done.stderr.strip()}")

    @property
    def kubeconfig(self) -> Path:
        assert self._state is not None
        return Path(self._state.name) / "kubeconfig"

    @property
    def client(self) -> Client:
        assert self._client is not None
        return self._client

    async def slices(self) -> list[ResourceSlice]:
        found = await self.client.list(resource_slice.RESOURCE)
        return [each for each in found.items if each.spec.driver == self.info.name]

    async def published(self, seconds: float) -> list[ResourceSlice]:
        """Return the slices of the driver when there are any; none after so many seconds."""
        until = self.clock.monotonic() + seconds
        while not (found := await self.slices()) and self.clock.monotonic() < until:
            await self.clock.sleep(_STEP)
        return found

    async def claim(self, devices: Sequence[tuple[str, str]] | None) -> m.ClaimReference:
        """Create a claim; allocate these devices (pool and name) to it, unless there are none."""
        self._claims += 1
        requests = [f"r-{i}" for i, _ in enumerate(devices or [("", "")])]
        document: dict[str, Any] = {
            "metadata": {"name": f"claim-{self._claims}", "namespace": "default"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": each, "exactly": {"deviceClassName": "any"}} for each in requests
                    ]
                }
            },
        }
        resource = resource_claim.RESOURCE
        made = await self.client.create(resource, resource.from_document(document))
        if devices:
            status = {"allocation": {"devices": self._allocation(devices)}}
            await self.client.patch(
                resource, made.metadata.name, {"status": status}, "default", subresource="status"
            )
        meta = made.metadata
        return m.ClaimReference(namespace="default", name=meta.name, uid=meta.uid)

    def _allocation(self, devices: Sequence[tuple[str, str]]) -> dict[str, Any]:
        results = [
            {"request": f"r-{i}", "driver": self.info.name, "pool": pool, "device": device}
            for i, (pool, device) in enumerate(devices)
        ]
        opaque = {"driver": self.info.name, "parameters": dict(self.parameters)}
        config = [{"source": "FromClaim", "opaque": opaque}] if self.parameters else []
        return {"results": results, "config": config}

    # The kubelet.

    @property
    def registry(self) -> Path:
        return self.directory / m.REGISTRY

    def sockets(self) -> list[Path]:
        found = []
        for entry in os.scandir(self.registry):
            if stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode):
                found.append(Path(entry.path))
        return sorted(found)

    async def registers(self, seconds: float) -> bool:
        """Whether a driver answers at a registration socket, within so many seconds."""
        until = self.clock.monotonic() + seconds
        while self.clock.monotonic() < until and self.alive:
            for socket in filter(answers, self.sockets()):
                with contextlib.suppress(CallRejected):
                    self.info = await call(socket, calls.GET_INFO, Empty(), 5)
                    if answers(self.endpoint):
                        return True
            await self.clock.sleep(_STEP)
        return False

    async def notify(self, error: str = "") -> None:
        """Tell the driver whether it is registered. Raises CallRejected."""
        status = RegistrationStatus(plugin_registered=not error, error=error)
        for socket in filter(answers, self.sockets()):
            await call(socket, calls.NOTIFY, status, 5)

    @property
    def endpoint(self) -> Path:
        return Path(self.info.endpoint or self.registry / "none")

    def methods(self, service: str = "") -> DriverMethods:
        """Return the methods of a service; without a name of the first that is usable."""
        usable = [each for each in self.info.supported_versions if each in SERVICES]
        return SERVICES[service or usable[0]]

    async def prepare(
        self, *claims: m.ClaimReference, service: str = ""
    ) -> Mapping[str, m.PrepareResult]:
        """Raises CallRejected."""
        method = self.methods(service).prepare
        answer = await call(self.endpoint, method, m.ClaimsRequest(claims=claims))
        return answer.claims

    async def unprepare(
        self, *claims: m.ClaimReference, service: str = ""
    ) -> Mapping[str, m.UnprepareResult]:
        """Raises CallRejected."""
        method = self.methods(service).unprepare
        answer = await call(self.endpoint, method, m.ClaimsRequest(claims=claims))
        return answer.claims

    # The driver.

    async def start(self) -> None:
        """Start the driver, if that is ours to do."""
        if self.command:
            env = {"KUBECONFIG": str(self.kubeconfig), "NODE_NAME": NODE}
            await self._program.start(self.command, env)

    async def stop(self, number: int = signal.SIGTERM, seconds: float = 5.0) -> bool:
        return await self._program.stop(number, seconds)

    @property
    def alive(self) -> bool:
        return self._program.alive
