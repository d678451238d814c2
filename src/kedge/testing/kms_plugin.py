"""A KMS v2 plugin for tests: a key in memory, and answers that tests change."""

import os
from pathlib import Path
from typing import Any

from kedge.apiserver.kms import messages as m
from kedge.deviceplugin import library, methods
from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.sockets import HeldDirectory, reachable
from kedge.storage.encryption import AesGcm
from kedge.storage.store import KeyServiceError


class TestKeyPlugin:
    """Implements KeyPlugin in this process, and offers itself at a socket."""

    __test__ = False

    def __init__(self) -> None:
        self.key_id = "one"
        self.healthz = "ok"
        self.version = "v2"
        self.failure = ""
        self.calls: list[str] = []
        self.annotations = {"kms.example.org": b"a note"}
        self._keys: dict[str, AesGcm] = {}
        self._server: Any = None
        self._held = HeldDirectory()

    async def status(self) -> m.StatusResponse:
        self._called("Status")
        return m.StatusResponse(version=self.version, healthz=self.healthz, key_id=self.key_id)

    async def encrypt(self, source: bytes) -> m.EncryptResponse:
        self._called("Encrypt")
        ciphertext = self._key(self.key_id).encrypt(source, self.key_id.encode())
        return m.EncryptResponse(
            ciphertext=ciphertext, key_id=self.key_id, annotations=self.annotations
        )

    async def decrypt(self, found: m.EncryptedObject) -> bytes:
        self._called("Decrypt")
        if found.annotations != self.annotations:
            raise KeyServiceError("test", "other annotations")
        return self._key(found.key_id).decrypt(found.source, found.key_id.encode())

    async def close(self) -> None:
        """Stop listening; the keys stay."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
            self._held.close()

    async def listen(self, path: Path) -> None:
        """Answer at a Unix socket."""
        grpc = library.load()
        self._server = grpc.aio.server()

        async def status(request: Empty, context: Any) -> m.StatusResponse:
            return await self.status()

        async def encrypt(request: m.EncryptRequest, context: Any) -> m.EncryptResponse:
            return await self.encrypt(request.plaintext)

        async def decrypt(request: m.DecryptRequest, context: Any) -> m.DecryptResponse:
            found = m.EncryptedObject(
                source=request.ciphertext, key_id=request.key_id, annotations=request.annotations
            )
            return m.DecryptResponse(plaintext=await self.decrypt(found))

        offered: dict[methods.Method[Any, Any], methods.Handler] = {
            m.STATUS: status,
            m.ENCRYPT: encrypt,
            m.DECRYPT: decrypt,
        }
        methods.offer(grpc, self._server, offered)
        where, self._held = reachable(path)
        self._server.add_insecure_port(f"unix:{where}")
        await self._server.start()

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if self.failure:
            raise KeyServiceError("test", self.failure)

    def _key(self, key_id: str) -> AesGcm:
        return self._keys.setdefault(key_id, AesGcm(os.urandom(32)))
