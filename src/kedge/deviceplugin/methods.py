"""The gRPC methods of the device plugin API, with their codecs.

This module imports no gRPC library: the caller passes a channel or a server.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Generic, TypeVar

import msgspec

from kedge.deviceplugin import messages as m
from kedge.deviceplugin import wire

Q = TypeVar("Q")
A = TypeVar("A")


class Method(msgspec.Struct, Generic[Q, A], frozen=True):
    """One method: its name on the wire, its request and its response."""

    service: str
    name: str
    request: type[Q]
    response: type[A]
    streams: bool = False
    """Whether it answers again and again."""

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


_PLUGIN: Final = "v1beta1.DevicePlugin"
_KEDGE: Final = "kedge.deviceplugin.v1.DevicePlugin"
_WATCHED: Final = "pluginregistration.Registration"

REGISTER: Final = Method("v1beta1.Registration", "Register", m.RegisterRequest, m.Empty)
OPTIONS: Final = Method(_PLUGIN, "GetDevicePluginOptions", m.Empty, m.DevicePluginOptions)
LIST_AND_WATCH: Final = Method(
    _PLUGIN, "ListAndWatch", m.Empty, m.ListAndWatchResponse, streams=True
)
PREFER: Final = Method(
    _PLUGIN, "GetPreferredAllocation", m.PreferredAllocationRequest, m.PreferredAllocationResponse
)
ALLOCATE: Final = Method(_PLUGIN, "Allocate", m.AllocateRequest, m.AllocateResponse)
PRE_START: Final = Method(_PLUGIN, "PreStartContainer", m.PreStartContainerRequest, m.Empty)
RELEASE: Final = Method(_KEDGE, "ReleaseContainer", m.ReleaseContainerRequest, m.Empty)
GET_INFO: Final = Method(_WATCHED, "GetInfo", m.Empty, m.PluginInfo)
NOTIFY: Final = Method(_WATCHED, "NotifyRegistrationStatus", m.RegistrationStatus, m.Empty)


def caller(channel: Any, method: Method[Q, A]) -> Callable[..., Awaitable[A]]:
    """Return a function that calls the method: (request, timeout=...) -> response."""
    made: Callable[..., Awaitable[A]] = channel.unary_unary(
        method.path,
        request_serializer=wire.encode,
        response_deserializer=partial(wire.decode, method.response),
    )
    return made


def streamer(channel: Any, method: Method[Q, A]) -> Callable[..., Any]:
    """The same for a method that answers again and again."""
    made: Callable[..., Any] = channel.unary_stream(
        method.path,
        request_serializer=wire.encode,
        response_deserializer=partial(wire.decode, method.response),
    )
    return made


Handler = Callable[[Any, Any], Any]
"""(request, context) -> answer, or an async generator of answers."""


def offer(grpc: Any, server: Any, handlers: dict[Method[Any, Any], Handler]) -> None:
    """Have a server of the library `grpc` answer these methods."""
    services: dict[str, dict[str, Any]] = {}
    for method, handler in handlers.items():
        make = (
            grpc.unary_stream_rpc_method_handler
            if method.streams
            else grpc.unary_unary_rpc_method_handler
        )
        services.setdefault(method.service, {})[method.name] = make(
            handler,
            request_deserializer=partial(wire.decode, method.request),
            response_serializer=wire.encode,
        )
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(service, methods)
            for service, methods in services.items()
        ]
    )
