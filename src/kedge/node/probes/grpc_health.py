"""gRPC probe: the standard health service. The only importer of grpcio for probes."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator
from functools import cache
from typing import Any, Final

from kedge.api.core_v1.pod.probe import GRPCAction
from kedge.machinery.durations import SECOND, format_duration
from kedge.machinery.protobuf_wire import bytes_field
from kedge.node.network.forward import Target, forward
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult, address

_METHOD: Final = "/grpc.health.v1.Health/Check"
_STATUSES: Final = {0: "UNKNOWN", 1: "SERVING", 2: "NOT_SERVING", 3: "SERVICE_UNKNOWN"}


@cache
def _library() -> Any:
    """Return grpcio, imported by the first probe: it is larger than the rest of the agent."""
    try:
        importlib.import_module("grpc.aio")
        return importlib.import_module("grpc")
    except ImportError:
        return None


async def probe_grpc(
    action: GRPCAction, ip: str, seconds: float, network: NetworkPlace = MACHINE
) -> ProbeOutcome:
    """Run the probe. Raises ProbeError if grpcio is not installed."""
    grpc = _library()
    if grpc is None:
        raise ProbeError("gRPC probes need the package grpcio on the node")
    if not ip:
        raise ProbeError("the pod has no address")
    where = address(ip, action.port)
    limit = format_duration(int(seconds * SECOND))
    options = [("grpc.primary_user_agent", "kube-probe/1.36"), ("grpc.enable_http_proxy", 0)]
    async with (
        _reachable((ip, action.port), network) as target,
        grpc.aio.insecure_channel(target, options=options) as channel,
    ):
        try:
            async with asyncio.timeout(seconds):
                await channel.channel_ready()
        except TimeoutError:
            text = f'timeout: failed to connect service "{where}" within {limit}'
            return ProbeOutcome(ProbeResult.FAILURE, f"{text}: context deadline exceeded")
        return await _check(channel, action.service or "", seconds, limit)


@contextlib.asynccontextmanager
async def _reachable(there: Target, network: NetworkPlace) -> AsyncIterator[str]:
    """Yield an address at which the library, which makes its own sockets, reaches a pod."""
    if network.is_machine:
        yield address(*there)
        return

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await forward(reader, writer, there, network)
        except OSError:
            writer.transport.abort()

    # Not above: few pods have such a probe in a network of their own.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kedge-probe-") as directory:
        path = f"{directory}/socket"
        listening = await asyncio.start_unix_server(pass_on, path)
        try:
            yield f"unix:{path}"
        finally:
            listening.close()


async def _check(channel: Any, service: str, seconds: float, limit: str) -> ProbeOutcome:
    check = channel.unary_unary(_METHOD, request_serializer=_request, response_deserializer=_status)
    try:
        status = await check(service, timeout=seconds)
    except _library().aio.AioRpcError as error:
        return ProbeOutcome(ProbeResult.FAILURE, _refusal(error, limit))
    if status == 1:
        return ProbeOutcome(ProbeResult.SUCCESS, "service healthy")
    name = _STATUSES.get(status, str(status))
    return ProbeOutcome(ProbeResult.FAILURE, f'service unhealthy (responded with "{name}")')


def _refusal(error: Any, limit: str) -> str:
    code = error.code().name
    if code == "UNIMPLEMENTED":
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {error.details()}"
        )
    if code == "DEADLINE_EXCEEDED":
        return f"timeout: health rpc did not complete within {limit}"
    name = "".join(word.capitalize() for word in code.split("_"))
    cause = f"rpc error: code = {name} desc = {error.details()}"
    return f"error: health rpc probe failed: {cause}"


def _request(service: str) -> bytes:
    """HealthCheckRequest: field 1 is the service."""
    text = service.encode()
    return bytes_field(1, text) if text else b""


def _status(data: bytes) -> int:
    """HealthCheckResponse: field 1 is the status, which is left out if it is 0."""
    return data[1] if len(data) >= 2 and data[0] == 0x08 else 0
