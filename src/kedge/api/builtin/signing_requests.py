"""Validation of the conditions and the certificate of CertificateSigningRequests."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kedge.api.builtin.content import listed, replaced, text
from kedge.api.model import Document
from kedge.machinery.errors import FieldError

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"

_CONDITIONS: Final = "status.conditions"
_CERTIFICATE: Final = "status.certificate"
_ANY_STATUS: Final = ("False", "True", "Unknown")
_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,64})-----\s*")


def with_requester(obj: Document, requester: dict[str, Any]) -> Document:
    """Return a new request that names the authenticated requester, whatever it named itself."""
    spec = {k: v for k, v in (obj.content.get("spec") or {}).items() if k not in _REQUESTER_FIELDS}
    return replaced(obj, obj.content | {"spec": {**spec, **requester}})


_REQUESTER_FIELDS: Final = ("username", "uid", "groups", "extra")


def with_condition_times(new: Document, old: Document, now: str) -> Document:
    """Return the request with the missing times of its conditions."""
    conditions = listed(new.content, _CONDITIONS)
    if all(c.get("lastUpdateTime") and c.get("lastTransitionTime") for c in conditions):
        return new
    before = {
        (c.get("type"), c.get("status")): c.get("lastTransitionTime")
        for c in listed(old.content, _CONDITIONS)
    }
    filled = [
        {
            "lastUpdateTime": now,
            "lastTransitionTime": before.get((c.get("type"), c.get("status"))) or now,
            **{name: value for name, value in c.items() if value},
        }
        for c in conditions
    ]
    status = {**new.content["status"], "conditions": filled}
    return replaced(new, new.content | {"status": status})


def kept_status(new: Document, old: Document) -> Document:
    """Keep the conditions of approval: a signer that writes the status cannot change them."""
    conditions = list(listed(new.content, _CONDITIONS))
    for kind in (APPROVED, DENIED):
        was = [c for c in listed(old.content, _CONDITIONS) if c.get("type") == kind]
        places = [i for i, c in enumerate(conditions) if c.get("type") == kind]
        if len(was) == len(places):
            for i, condition in zip(places, was, strict=True):
                conditions[i] = condition
    if not conditions:
        return new
    status = {**new.content["status"], "conditions": conditions}
    return replaced(new, new.content | {"status": status})


def status_errors(new: Document, old: Document) -> Iterator[FieldError]:
    """Yield the errors of a write to the status."""
    yield from condition_errors(new, old)
    for kind in (APPROVED, DENIED):
        if len(_of(kind, new)) > len(_of(kind, old)):
            why = f'updates may not add a condition of type "{kind}"'
            yield FieldError.forbidden(_CONDITIONS, why)
    was, is_ = text(old.content, _CERTIFICATE), text(new.content, _CERTIFICATE)
    if was == is_:
        return
    if was:
        why = "updates may not modify existing certificate content"
        yield FieldError.forbidden(_CERTIFICATE, why)
    if problem := _certificate_problem(is_):
        yield FieldError.invalid(_CERTIFICATE, "<certificate data>", problem)


def condition_errors(new: Document, old: Document) -> Iterator[FieldError]:
    """Yield the errors of the conditions after a write through any endpoint."""
    conditions = listed(new.content, _CONDITIONS)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        kind = text(condition, "type")
        yield from _each(condition, f"{_CONDITIONS}[{i}]")
        opposite = {APPROVED: DENIED, DENIED: APPROVED}.get(kind, "")
        if opposite in seen and kind not in seen:
            why = "Approved and Denied conditions are mutually exclusive"
            yield FieldError.invalid(_CONDITIONS, kind, why)
        if kind in seen:
            yield FieldError.duplicate(f"{_CONDITIONS}[{i}].type", kind)
        seen.add(kind)
    for kind in (APPROVED, DENIED, FAILED):
        if len(_of(kind, new)) < len(_of(kind, old)):
            why = f'updates may not remove a condition of type "{kind}"'
            yield FieldError.forbidden(_CONDITIONS, why)


def _each(condition: Any, path: str) -> Iterator[FieldError]:
    kind, status = text(condition, "type"), text(condition, "status")
    if not kind:
        yield FieldError.required(f"{path}.type")
    allowed = ("True",) if kind in (APPROVED, DENIED, FAILED) else _ANY_STATUS
    if not status:
        yield FieldError.required(f"{path}.status")
    elif status not in allowed:
        yield FieldError.not_supported(f"{path}.status", status, allowed)


def _of(kind: str, obj: Document) -> Sequence[Any]:
    return [c for c in listed(obj.content, _CONDITIONS) if c.get("type") == kind]


def _certificate_problem(encoded: str) -> str:
    """Why this base64 text is no PEM of certificates."""
    # Too slow to import for those who never see a certificate.
    from cryptography import x509

    try:
        pem = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        pem = b""
    blocks = _blocks(pem)
    if not blocks:
        return "must contain at least one CERTIFICATE PEM block"
    for kind, content in blocks:
        if kind != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind}"'
        if b":" in content:
            return "no PEM block headers are permitted"
        try:
            x509.load_der_x509_certificate(binascii.a2b_base64(content))
        except ValueError as error:
            return str(error)
    return ""


def _blocks(pem: bytes) -> list[tuple[str, bytes]]:
    """Return the type and content of each PEM block.

    Each end is searched once: one expression for both would scan the rest of the text for each
    beginning without an end.
    """
    found: list[tuple[str, bytes]] = []
    missing: set[bytes] = set()
    at = 0
    while (begin := _BEGIN.search(pem, at)) is not None:
        at = begin.end()
        mark = b"-----END " + begin[1] + b"-----"
        end = -1 if mark in missing else pem.find(mark, at)
        if end < 0:
            missing.add(mark)
            if len(missing) > _MOST_KINDS:
                break
            continue
        found.append((begin[1].decode(), pem[at:end]))
        at = end + len(mark)
    return found


_MOST_KINDS: Final = 16
