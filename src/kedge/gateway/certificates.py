"""Certificates of the gateway: chosen by the name that a client asks for during the handshake."""

import base64
import binascii
import logging
import os
import ssl
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kedge.client.informer import Cache, Key
from kedge.gateway.objects import SecretInfo

log = logging.getLogger(__name__)

KEPT: Final = 256
"""TLS contexts that are kept."""
MOST_PEM_BYTES: Final = 64 << 10
"""A chain of certificates is sent in each handshake."""
MOST_RSA_BITS: Final = 4096
"""Each handshake signs with the key, in the event loop: 16,384 bits take a tenth of a second."""

_ENCRYPTED: Final = b"ENCRYPTED"
"""In the header of an encrypted key, which chooses how many rounds it takes to try a password: two
billion take a quarter of an hour."""


class Certificates:
    """TLS contexts made from Secrets of the type kubernetes.io/tls."""

    def __init__(
        self,
        secret_of: Callable[[str], Key | None],
        secrets: Cache[SecretInfo],
        certificate: Path,
        key: Path,
    ) -> None:
        """`certificate` and `key` are for names without a Secret."""
        self._secret_of = secret_of
        self._secrets = secrets
        self._contexts: OrderedDict[tuple[Key, str], ssl.SSLContext | None] = OrderedDict()
        self.default = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """The context to listen with."""
        self.default.load_cert_chain(certificate, key)
        self.default.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        found = self.context(name.lower()) if name else None
        if found is not None:
            connection.context = found

    def context(self, name: str) -> ssl.SSLContext | None:
        """Return the context of a host name; None if it has no usable Secret."""
        key = self._secret_of(name)
        secret = None if key is None else self._secrets.get(key.name, key.namespace)
        if key is None or secret is None:
            return None
        version = (key, secret.metadata.resource_version)
        if version not in self._contexts:
            self._contexts[version] = _context(secret)
            if len(self._contexts) > KEPT:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(version)
        return self._contexts[version]


def _context(secret: SecretInfo) -> ssl.SSLContext | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        pem = [base64.b64decode(secret.data[name]) for name in ("tls.crt", "tls.key")]
        _check(*pem)
        _load(context, b"\n".join(pem))
    except (KeyError, ValueError, binascii.Error, ssl.SSLError, OSError) as error:
        meta = secret.metadata
        log.warning("certificate unusable secret=%s/%s error=%r", meta.namespace, meta.name, error)
        return None
    return context


def _check(certificates: bytes, key: bytes) -> None:
    """Raise ValueError for certificates and keys that make handshakes long."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import rsa

    if len(certificates) + len(key) > MOST_PEM_BYTES:
        raise ValueError(f"more than {MOST_PEM_BYTES} bytes")
    if _ENCRYPTED in certificates + key:
        raise ValueError("an encrypted key")
    try:
        public = x509.load_pem_x509_certificate(certificates).public_key()
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error
    if isinstance(public, rsa.RSAPublicKey) and public.key_size > MOST_RSA_BITS:
        raise ValueError(f"an RSA key of more than {MOST_RSA_BITS} bits")


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Load a certificate and its key from memory; the ssl module reads only files."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)
    finally:
        os.close(descriptor)


def _no_password() -> str:
    """Return an empty password, so that nothing asks for one at a terminal."""
    return ""
