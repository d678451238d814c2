"""An OpenID Connect provider for tests: signs tokens, and serves discovery and keys."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from kedge.apiserver import pki
from kedge.machinery.clock import SystemClock
from kedge.web.message import HttpRequest, Response, json_response
from kedge.web.server import HttpServer

AUDIENCE = "kedge-test"
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


class ProviderKey:
    """A key pair for one algorithm."""

    def __init__(self, id: str, algorithm: str = "ES256") -> None:
        self.id = id
        self.algorithm = algorithm
        self._rsa: rsa.RSAPrivateKey | None = None
        self._ec: ec.EllipticCurvePrivateKey | None = None
        if algorithm in _CURVES:
            self._ec = ec.generate_private_key(_CURVES[algorithm])
        else:
            self._rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def published(self) -> dict[str, str]:
        """The public half as a JSON web key."""
        head = {"kid": self.id, "use": "sig", "alg": self.algorithm}
        if self._ec is not None:
            public = self._ec.public_key().public_numbers()
            size = (self._ec.key_size + 7) // 8
            names = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}
            point = {"x": _b64(public.x.to_bytes(size)), "y": _b64(public.y.to_bytes(size))}
            return {**head, "kty": "EC", "crv": names[self._ec.curve.name], **point}
        assert self._rsa is not None
        numbers = self._rsa.public_key().public_numbers()
        return {
            **head,
            "kty": "RSA",
            "n": _b64(numbers.n.to_bytes(256)),
            "e": _b64(numbers.e.to_bytes(3)),
        }

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        """Return a signed token; `header` replaces fields of its header."""
        head = {"alg": self.algorithm, "kid": self.id} | header
        parts = [_b64(msgspec.json.encode(each)) for each in (head, claims)]
        signed = ".".join(parts)
        return f"{signed}.{_b64(self._sign(signed.encode()))}"

    def _sign(self, message: bytes) -> bytes:
        digest = _HASHES[self.algorithm[2:]]
        if self._ec is not None:
            size = (self._ec.key_size + 7) // 8
            r, s = utils.decode_dss_signature(self._ec.sign(message, ec.ECDSA(digest)))
            return r.to_bytes(size) + s.to_bytes(size)
        assert self._rsa is not None
        if self.algorithm[0] == "R":
            return self._rsa.sign(message, padding.PKCS1v15(), digest)
        scheme = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return self._rsa.sign(message, scheme, digest)


class OidcProvider:
    """An issuer; tests change its keys and its answers."""

    def __init__(self, url: str, ca_pem: bytes = b"") -> None:
        self.url = url
        self.ca_pem = ca_pem
        self.keys = [ProviderKey("first")]
        self.cache_control = ""
        self.asked: list[str] = []
        """The paths of all requests."""
        self.jwks: Callable[[], Awaitable[Response]] | None = None
        """Answers for the keys instead."""

    def token(self, **claims: Any) -> str:
        """Return a token for jane, signed by the newest key; None takes a claim out."""
        standard = {"iss": self.url, "sub": "jane", "aud": AUDIENCE, "exp": 4_000_000_000}
        given = {k: v for k, v in (standard | claims).items() if v is not None}
        return self.keys[-1].token(given)

    def handle(self, http: HttpRequest) -> Response | Awaitable[Response]:
        self.asked.append(http.path)
        if http.path == "/.well-known/openid-configuration":
            return json_response({"issuer": self.url, "jwks_uri": f"{self.url}/keys"})
        if http.path != "/keys":
            return Response(404)
        if self.jwks is not None:
            return self.jwks()
        response = json_response({"keys": [key.published for key in self.keys]})
        if self.cache_control:
            response.headers.append(("Cache-Control", self.cache_control))
        return response

    def entry(self, **fields: Any) -> dict[str, Any]:
        """Return an entry of `jwt` that trusts this provider."""
        issuer = {"url": self.url, "audiences": [AUDIENCE]}
        if self.ca_pem:
            issuer["certificateAuthority"] = self.ca_pem.decode()
        mappings = {
            "username": {"claim": "sub", "prefix": "oidc:"},
            "groups": {"claim": "groups", "prefix": "oidc:"},
        }
        return {"issuer": issuer, "claimMappings": mappings} | fields


def authentication_file(*entries: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return an AuthenticationConfiguration."""
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    return head | {"jwt": list(entries)} | fields


@asynccontextmanager
async def oidc_provider(keys: Path) -> AsyncIterator[OidcProvider]:
    """Yield a provider on loopback, with a certificate of its own authority in the directory."""
    identity = pki.ensure(keys, ("127.0.0.1",))
    server = HttpServer(lambda http: running.handle(http), SystemClock())
    port = await server.listen("127.0.0.1", 0, identity.context)
    running = OidcProvider(f"https://127.0.0.1:{port}", identity.ca_pem)
    try:
        yield running
    finally:
        await server.close(grace=0.1)


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
