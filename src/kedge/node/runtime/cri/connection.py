"""CriConnection: the gRPC connection to a container runtime at a Unix socket."""

import asyncio
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.deviceplugin import library, methods
from kedge.deviceplugin.methods import Method
from kedge.node.runtime.runtime import NotFoundError, RuntimeFailure

CALL_SECONDS: Final = 120.0
"""Time for a call, as in the kubelet's --runtime-request-timeout."""
PULL_SECONDS: Final = 3600.0
_LARGEST: Final = 16 << 20
"""Bytes of the largest answer, as in the kubelet."""

Q = TypeVar("Q")
A = TypeVar("A")


class RuntimeUnavailable(RuntimeFailure):
    """The runtime does not answer; it may be restarting."""


class UnsupportedCall(RuntimeFailure):
    """The runtime does not know the method."""


class CriConnection:
    """Calls one runtime. gRPC connects again by itself after the runtime has restarted."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self._channel: Any = library.load().aio.insecure_channel(
            f"unix:{socket}",
            options=[
                # Some servers reject a path as the authority.
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
                ("grpc.max_receive_message_length", _LARGEST),
            ],
        )
        self._calls: dict[str, Any] = {}

    async def call(self, method: Method[Q, A], request: Q, seconds: float = CALL_SECONDS) -> A:
        """Call a method. Raises NotFoundError, TimeoutError or RuntimeFailure."""
        calling = self._calls.get(method.path)
        if calling is None:
            calling = self._calls[method.path] = methods.caller(self._channel, method)
        grpc = library.load()
        try:
            answer: A | None = await calling(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise self._failure(method.name, error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            raise RuntimeUnavailable(f"the connection to {self.socket} is closed") from error
        if answer is None:
            raise RuntimeFailure(f"the answer of the runtime to {method.name} cannot be decoded")
        return answer

    def _failure(self, name: str, error: Any) -> Exception:
        details = str(error.details() or "")
        match error.code().name:
            case "NOT_FOUND":
                return NotFoundError(details)
            case "DEADLINE_EXCEEDED" | "CANCELLED":
                # A server knows the deadline too, and may be the first to give up.
                return TimeoutError(f"{name} took too long: {details}")
            case "UNAVAILABLE":
                return RuntimeUnavailable(
                    f"nothing answers at {self.socket}: start the container runtime, or see its log"
                )
            case "UNIMPLEMENTED":
                return UnsupportedCall(f"the runtime does not know {name}")
        return RuntimeFailure(details or f"{name} failed: {error.code().name}")

    async def close(self) -> None:
        await self._channel.close()
