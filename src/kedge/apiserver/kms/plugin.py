"""The gRPC client of a KMS plugin at a Unix socket."""

import asyncio
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar
from uuid import uuid4

from kedge.apiserver.kms import messages as m
from kedge.deviceplugin import library, methods
from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.sockets import reachable
from kedge.storage.store import KeyServiceError

LARGEST: Final = 1 << 20
"""Bytes of the largest response."""

Q = TypeVar("Q")
A = TypeVar("A")


class KeyPlugin(Protocol):
    """Encrypts and decrypts sources of keys; KeyServiceError if it does not answer."""

    async def status(self) -> m.StatusResponse: ...

    async def encrypt(self, source: bytes) -> m.EncryptResponse: ...

    async def decrypt(self, found: m.EncryptedObject) -> bytes: ...

    async def close(self) -> None: ...


class GrpcKeyPlugin:
    """A plugin; the connection is restored when it restarts at the same socket."""

    def __init__(self, name: str, path: Path, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._where, self._held = reachable(path)
        self._channel: Any = None

    async def status(self) -> m.StatusResponse:
        return await self._call(m.STATUS, Empty())

    async def encrypt(self, source: bytes) -> m.EncryptResponse:
        return await self._call(m.ENCRYPT, m.EncryptRequest(plaintext=source, uid=str(uuid4())))

    async def decrypt(self, found: m.EncryptedObject) -> bytes:
        request = m.DecryptRequest(
            ciphertext=found.source,
            uid=str(uuid4()),
            key_id=found.key_id,
            annotations=found.annotations,
        )
        return (await self._call(m.DECRYPT, request)).plaintext

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        self._held.close()

    async def _call(self, method: methods.Method[Q, A], request: Q) -> A:
        grpc = await asyncio.to_thread(library.load)
        if self._channel is None:
            self._channel = _channel(grpc, self._where)
        try:
            call = methods.caller(self._channel, method)
            answer = await call(request, timeout=self._seconds, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise KeyServiceError(self._name, f"{method.name}: {library.refusal(error)}") from error
        if answer is None:
            # The library logs that it cannot decode the response, and returns nothing.
            raise KeyServiceError(self._name, f"{method.name}: the response cannot be decoded")
        return answer


def _channel(grpc: Any, where: str) -> Any:
    return grpc.aio.insecure_channel(
        f"unix:{where}",
        options=[
            # Some servers reject a path as the authority.
            ("grpc.default_authority", "localhost"),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.max_receive_message_length", LARGEST),
        ],
    )
