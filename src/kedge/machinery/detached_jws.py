"""Signatures of bootstrap tokens: a JWS without its content (RFC 7515, appendix F), with HS256."""

import base64
import hashlib
import hmac


def signature(content: str, token_id: str, secret: str) -> str:
    """Return the signature that the holder of a token compares with its own.

    Clients compare texts, so the header has exactly these bytes.
    """
    head = _encoded(f'{{"alg":"HS256","kid":"{token_id}"}}'.encode())
    signed = f"{head}.{_encoded(content.encode())}".encode()
    return f"{head}..{_encoded(hmac.digest(secret.encode(), signed, hashlib.sha256))}"


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")
