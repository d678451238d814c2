"""The OpenID discovery document and the public keys, with which others verify account tokens."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from kedge.apiserver.authentication.keys import SigningKey
from kedge.apiserver.authentication.service_accounts import ISSUER
from kedge.machinery.interfaces import is_reachable
from kedge.web.message import JSON, HttpRequest, Response

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
KEY_SET: Final = "application/jwk-set+json"
_CACHING: Final = ("Cache-Control", "public, max-age=3600")


class OpenId:
    """The two documents; `address` gives host and port under which this server is reached."""

    def __init__(self, key: SigningKey, address: Callable[[], str]) -> None:
        self._key = key
        self._address = address

    def answer(self, request: HttpRequest) -> Response | Awaitable[Response] | None:
        """The answer to the path of one of the documents, None for any other."""
        match request.path.rstrip("/"):
            case "/.well-known/openid-configuration":
                return _page(self._configuration(), JSON)
            case "/openid/v1/jwks":
                return self._keys() if self._key.ready else self._keys_later()
            case _:
                return None

    def _keys(self) -> Response:
        return _page({"keys": [self._key.published()]}, KEY_SET)

    async def _keys_later(self) -> Response:
        # Another process may be making the key, and this one would wait for it.
        await asyncio.to_thread(self._key.prepare)
        return self._keys()

    def _configuration(self) -> dict[str, object]:
        return {
            "issuer": ISSUER,
            "jwks_uri": self._keys_url(),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def _keys_url(self) -> str:
        """Where pods find the keys: they reach a server at a loopback address by its Service."""
        address = self._address()
        host = address.rpartition(":")[0].strip("[]")
        return f"https://{address}{KEYS}" if is_reachable(host) else f"{ISSUER}{KEYS}"


def _page(document: object, content_type: str) -> Response:
    return Response(200, msgspec.json.encode(document), content_type, [_CACHING])
