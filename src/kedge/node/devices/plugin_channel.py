"""PluginChannel: a gRPC connection to a program on the machine that listens at a Unix socket."""

import asyncio
from pathlib import Path
from typing import Any, Final, TypeVar

from kedge.deviceplugin import library, methods
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.sockets import reachable
from kedge.machinery.clock import Clock
from kedge.node.pod.timeouts import with_timeout

DIAL_SECONDS: Final = 10.0
INFO_SECONDS: Final = 5.0

Q = TypeVar("Q")
A = TypeVar("A")


class PluginError(Exception):
    """A call to a plugin failed; the text is that of Go's gRPC library."""


class PluginChannel:
    """A connection to one plugin."""

    largest: int = 16 * 2**20
    """Bytes of the largest response."""

    def __init__(self, name: str, path: Path, clock: Clock) -> None:
        self.path = path
        self.stopped = False
        """Whether the connection is lost, or another plugin has replaced this one."""
        self._name = name
        self._clock = clock
        self._where, self._held = reachable(path)
        self._channel: Any = None

    def open(self) -> None:
        """Begin to connect."""
        self._channel = library.load().aio.insecure_channel(
            f"unix:{self._where}",
            options=[
                # Some servers reject a path as the authority.
                ("grpc.default_authority", "localhost"),
                ("grpc.enable_http_proxy", 0),
                # Otherwise a plugin that restarts at the same path would wait for the back-off of
                # the old channel.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 500),
                ("grpc.max_receive_message_length", self.largest),
            ],
        )

    async def dial(self, seconds: float = DIAL_SECONDS) -> None:
        """Connect. Raises PluginError."""
        self.open()
        try:
            await with_timeout(self._clock, seconds, self._channel.channel_ready())
        except TimeoutError:
            await self.close()
            raise PluginError(
                "failed to dial device plugin: failed to create device plugin client: "
                "context deadline exceeded"
            ) from None

    async def info(self) -> m.PluginInfo:
        """Call GetInfo of the plugin watcher. Raises PluginError."""
        return await self.call(methods.GET_INFO, m.Empty(), INFO_SECONDS)

    async def notify(self, error: str) -> None:
        """Call NotifyRegistrationStatus. Raises PluginError."""
        status = m.RegistrationStatus(plugin_registered=not error, error=error)
        await self.call(methods.NOTIFY, status, INFO_SECONDS)

    async def close(self) -> None:
        self.stopped = True
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        self._held.close()

    async def call(
        self, method: methods.Method[Q, A], request: Q, seconds: float | None = None
    ) -> A:
        """Call a method. Raises PluginError."""
        if self._channel is None or self.stopped:
            raise PluginError(f"endpoint of {self._name} has been stopped")
        grpc = library.load()
        try:
            call = methods.caller(self._channel, method)(request, timeout=seconds)
            answer = await (call if seconds is None else with_timeout(self._clock, seconds, call))
        except TimeoutError:
            text = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
            raise PluginError(text) from None
        except grpc.aio.AioRpcError as error:
            raise PluginError(_error_text(error)) from error
        except grpc.aio.UsageError as error:
            raise PluginError(str(error)) from error
        except asyncio.CancelledError as error:
            raise self._cut_off() from error
        if answer is None:
            # The library logs that it cannot decode the response, and returns nothing.
            raise PluginError("rpc error: code = Internal desc = the response cannot be decoded")
        return answer

    def _cut_off(self) -> BaseException:
        """Convert the cancellation by a channel that is closed meanwhile to a PluginError."""
        task = asyncio.current_task()
        if not self.stopped or (task is not None and task.cancelling()):
            return asyncio.CancelledError()
        return PluginError("rpc error: code = Canceled desc = the connection was closed")


def _error_text(error: Any) -> str:
    text = library.refusal(error)
    if text.startswith("rpc error: code = DeadlineExceeded"):
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    return text
