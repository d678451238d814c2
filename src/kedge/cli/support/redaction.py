"""Take secrets out of texts and objects; pure.

Fields of objects are chosen by name. In logs, secrets are recognized by their form, which errs on
the side of removing too much.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

REMOVED: Final = "<removed>"

_SECRET_NAMES: Final = (
    r"pass(?:word|wd|phrase)?|secret|token|credential|api[-_]?key|auth|private[-_]?key"
)
_FORMS: Final = (
    re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)"),
    # JSON Web Tokens, such as those of service accounts.
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"(?i)(?<=bearer )[\w.~+/=-]{8,}"),
    re.compile(r"(?i)(?<=basic )[\w+/=-]{8,}"),
    # User and password of a URL.
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),
    # Bootstrap tokens.
    re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"),
)
_ASSIGNED: Final = re.compile(
    rf"""(?ix)(\b[\w.-]*(?:{_SECRET_NAMES})[\w.-]*["']?\s*[=:]\s*["']?)([^\s"',;&}}]+)"""
)
_KEPT_WORDS: Final = ("true", "false", "null", "none", "0", "")
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def text(content: str, known: Sequence[str] = ()) -> str:
    """Return a text without secrets; `known` are secrets that are removed wherever they stand."""
    for secret in known:
        if len(secret) >= 8:
            content = content.replace(secret, REMOVED)
    for form in _FORMS:
        content = form.sub(REMOVED, content)
    return _ASSIGNED.sub(_assigned, content)


def _assigned(found: re.Match[str]) -> str:
    if found[2].lower() in _KEPT_WORDS:
        return found[0]
    return f"{found[1]}{REMOVED}"


def document(value: Any, known: Sequence[str] = ()) -> Any:
    """Return an object without secrets: no values of variables, no copies of manifests, no fields
    whose names say that they are secret."""
    if isinstance(value, str):
        return text(value, known)
    if isinstance(value, Mapping):
        return {key: _field(key, each, known) for key, each in value.items() if _is_kept(key)}
    if isinstance(value, list | tuple):
        return [document(each, known) for each in value]
    return value


def _is_kept(key: str) -> bool:
    return key not in ("managedFields", _LAST_APPLIED)


def _field(key: str, value: Any, known: Sequence[str]) -> Any:
    if key == "env" and isinstance(value, list):
        return [_variable(each) for each in value]
    # Arguments often hold passwords, in any form. Which program it is tells enough.
    if key == "args" and isinstance(value, list):
        return [REMOVED for _ in value]
    if key == "command" and isinstance(value, list):
        return [document(value[0], known), *(REMOVED for _ in value[1:])] if value else []
    is_secret = re.fullmatch(rf"(?i).*(?:{_SECRET_NAMES})", key)
    if is_secret and isinstance(value, str) and value.lower() not in _KEPT_WORDS:
        return REMOVED
    return document(value, known)


def _variable(each: Any) -> Any:
    if isinstance(each, Mapping) and "value" in each:
        return {**each, "value": REMOVED}
    return each
