"""A CSI driver that misbehaves in the ways that the specification allows."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from kedge.deviceplugin import library
from kedge.deviceplugin import messages as plugins
from kedge.deviceplugin import methods as calls
from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.sockets import reachable
from kedge.node.storage import csi_messages as m

DRIVER_NAME = "disk.example.com"
_ALL = (m.STAGE_UNSTAGE, m.GET_VOLUME_STATS, m.EXPAND)


class ScriptedCsiDriver:
    """Keeps volumes as directories, and mounts them by links, so that it needs no rights.

    It is strict where the specification lets drivers be: it publishes only what is staged at the
    same path, and records every call.
    """

    def __init__(self, directory: Path, capabilities: tuple[int, ...] = _ALL) -> None:
        self.data = directory / "data"
        self.socket = directory / "csi.sock"
        self.capabilities = capabilities
        self.calls: list[str] = []
        self.requests: list[Any] = []
        self.errors: dict[str, str] = {}
        """By method: the code of the next answers, such as UNAVAILABLE."""
        self.lost_answers: set[str] = set()
        """Methods that do their work once, and then fail to answer."""
        self.gates: dict[str, asyncio.Event] = {}
        """By method: what it waits for."""
        self.staged: dict[str, str] = {}
        """By volume: where it is staged. A driver that restarts has forgotten it."""
        self.published: dict[str, str] = {}
        """By target: the volume."""
        self.raw_answers: dict[str, list[bytes]] = {}
        """By method: bytes to send instead of an answer; several are several answers."""
        self.makes_target = True
        self.node_id = "node-of-driver"
        self.most_volumes = 7
        self.segments: dict[str, str] = {}
        self.notified: list[plugins.RegistrationStatus] = []
        self._server: Any = None

    async def start(self) -> None:
        """Listen, for the first time or again."""
        grpc = await asyncio.to_thread(library.load)
        self.data.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers([self._raw_handler(grpc)])
        calls.offer(grpc, self._server, self._handlers())
        where, held = reachable(self.socket)
        self._server.add_insecure_port(f"unix:{where}")
        await self._server.start()
        held.close()

    async def stop(self) -> None:
        """Die, in the middle of calls."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def _raw_handler(self, grpc: Any) -> Any:
        """Return what answers with scripted bytes, before others are asked."""
        driver = self

        class RawHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
            """Answers the methods in `raw_answers`."""

            def service(self, details: Any) -> Any:
                method = details.method.rpartition("/")[2]
                if method not in driver.raw_answers:
                    return None
                return grpc.unary_stream_rpc_method_handler(partial(driver._raw, method))

        return RawHandler()

    async def _raw(self, method: str, request: Any, context: Any) -> AsyncIterator[bytes]:
        self.calls.append(method)
        for each in self.raw_answers[method]:
            yield each

    def _handlers(self) -> dict[calls.Method[Any, Any], calls.Handler]:
        return {
            calls.GET_INFO: self._info,
            calls.NOTIFY: self._notify,
            m.GET_INFO: self._node_info,
            m.GET_CAPABILITIES: self._capabilities,
            m.STAGE: self._stage,
            m.UNSTAGE: self._unstage,
            m.PUBLISH: self._publish,
            m.UNPUBLISH: self._unpublish,
            m.EXPAND_VOLUME: self._expand,
            m.GET_STATS: self._stats,
        }

    async def _begin(self, method: str, request: Any, context: Any) -> None:
        self.calls.append(method)
        self.requests.append(request)
        if method in self.gates:
            await self.gates[method].wait()
        if code := self.errors.get(method):
            await self._fail(context, code, f"scripted {code}")

    async def _end(self, method: str, context: Any) -> None:
        if method in self.lost_answers:
            self.lost_answers.discard(method)
            await self._fail(context, "UNAVAILABLE", "the answer was lost")

    async def _fail(self, context: Any, code: str, text: str) -> None:
        grpc = library.load()
        await context.abort(getattr(grpc.StatusCode, code), text)

    # Registration.

    async def _info(self, request: Any, context: Any) -> plugins.PluginInfo:
        return plugins.PluginInfo(
            type="CSIPlugin",
            name=DRIVER_NAME,
            endpoint=str(self.socket),
            supported_versions=["1.0.0"],
        )

    async def _notify(self, request: Any, context: Any) -> Empty:
        self.notified.append(request)
        return Empty()

    async def _node_info(self, request: Any, context: Any) -> m.NodeInfoResponse:
        await self._begin("NodeGetInfo", request, context)
        topology = m.CsiTopology(segments=self.segments) if self.segments else None
        return m.NodeInfoResponse(
            node_id=self.node_id,
            max_volumes_per_node=self.most_volumes,
            accessible_topology=topology,
        )

    async def _capabilities(self, request: Any, context: Any) -> m.NodeCapabilitiesResponse:
        return m.NodeCapabilitiesResponse(
            capabilities=[
                m.NodeCapability(rpc=m.RpcCapability(type=each)) for each in self.capabilities
            ]
        )

    # Volumes.

    async def _stage(self, request: m.StageVolumeRequest, context: Any) -> Empty:
        await self._begin("NodeStageVolume", request, context)
        (self.data / request.volume_id).mkdir(exist_ok=True)
        self.staged[request.volume_id] = request.staging_target_path
        await self._end("NodeStageVolume", context)
        return Empty()

    async def _unstage(self, request: m.VolumePathRequest, context: Any) -> Empty:
        await self._begin("NodeUnstageVolume", request, context)
        if request.volume_id in self.published.values():
            await self._fail(context, "FAILED_PRECONDITION", "the volume is published")
        self.staged.pop(request.volume_id, None)
        await self._end("NodeUnstageVolume", context)
        return Empty()

    async def _publish(self, request: m.PublishVolumeRequest, context: Any) -> Empty:
        await self._begin("NodePublishVolume", request, context)
        volume, target = request.volume_id, request.target_path
        if m.STAGE_UNSTAGE in self.capabilities and request.staging_target_path:
            if self.staged.get(volume) != request.staging_target_path:
                await self._fail(context, "FAILED_PRECONDITION", "the volume is not staged")
        else:
            (self.data / volume).mkdir(exist_ok=True)
        if self.makes_target:
            with contextlib.suppress(FileExistsError):
                os.symlink(self.data / volume, target)
        self.published[target] = volume
        await self._end("NodePublishVolume", context)
        return Empty()

    async def _unpublish(self, request: m.VolumePathRequest, context: Any) -> Empty:
        await self._begin("NodeUnpublishVolume", request, context)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(request.path)
        self.published.pop(request.path, None)
        await self._end("NodeUnpublishVolume", context)
        return Empty()

    async def _expand(self, request: m.ExpandVolumeRequest, context: Any) -> m.ExpandVolumeResponse:
        await self._begin("NodeExpandVolume", request, context)
        await self._end("NodeExpandVolume", context)
        wanted = request.capacity_range.required_bytes if request.capacity_range else 0
        return m.ExpandVolumeResponse(capacity_bytes=wanted)

    async def _stats(self, request: m.VolumeStatsRequest, context: Any) -> m.VolumeStatsResponse:
        await self._begin("NodeGetVolumeStats", request, context)
        return m.VolumeStatsResponse(
            usage=[
                m.CsiUsage(total=8 << 20, used=1 << 20, available=7 << 20, unit=m.BYTES),
                m.CsiUsage(total=100, used=10, available=90, unit=m.INODES),
            ]
        )
