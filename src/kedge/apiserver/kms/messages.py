"""The messages of the KMS v2 API, and the form of a stored value."""

from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from kedge.deviceplugin.messages import Empty
from kedge.deviceplugin.methods import Method

SEED: Final = 1
"""The type of a source that is the seed of keys, one for each value (HKDF)."""
KEY: Final = 0
"""The type of a source that is the key itself."""


class StatusResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a plugin."""

    version: Annotated[str, 1] = ""
    healthz: Annotated[str, 2] = ""
    key_id: Annotated[str, 3] = ""


class EncryptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A source to encrypt."""

    plaintext: Annotated[bytes, 1] = b""
    uid: Annotated[str, 2] = ""


class EncryptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An encrypted source."""

    ciphertext: Annotated[bytes, 1] = b""
    key_id: Annotated[str, 2] = ""
    annotations: Annotated[Mapping[str, bytes], 3] = msgspec.field(default_factory=dict)


class DecryptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A source to decrypt."""

    ciphertext: Annotated[bytes, 1] = b""
    uid: Annotated[str, 2] = ""
    key_id: Annotated[str, 3] = ""
    annotations: Annotated[Mapping[str, bytes], 4] = msgspec.field(default_factory=dict)


class DecryptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A decrypted source."""

    plaintext: Annotated[bytes, 1] = b""


class EncryptedObject(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value: the data, and the encrypted source of their key."""

    data: Annotated[bytes, 1] = b""
    key_id: Annotated[str, 2] = ""
    source: Annotated[bytes, 3] = b""
    annotations: Annotated[Mapping[str, bytes], 4] = msgspec.field(default_factory=dict)
    source_type: Annotated[int, 5] = KEY


_SERVICE: Final = "v2.KeyManagementService"
STATUS: Final = Method(_SERVICE, "Status", Empty, StatusResponse)
ENCRYPT: Final = Method(_SERVICE, "Encrypt", EncryptRequest, EncryptResponse)
DECRYPT: Final = Method(_SERVICE, "Decrypt", DecryptRequest, DecryptResponse)
