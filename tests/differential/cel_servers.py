"""The two API servers whose CEL is compared, and the parts of their answers that count."""

import asyncio
import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final, NamedTuple

_PANIC: Final = re.compile(
    r": (internal error: interface conversion: .*?|no such key: \w+) (?=evaluating)"
)
_POLICY_KEYS: Final = re.compile(r"d\d+/|(validation|mutation)\.policy\.")
"""The audit annotations of policies."""


class HttpAnswer(NamedTuple):
    """The parts of an answer that are compared."""

    status: int
    causes: tuple[str, ...]
    warnings: tuple[str, ...]
    object: str = ""
    """The parts of the object that policies may change, as JSON."""
    annotations: str = ""
    """The audit annotations of policies, as JSON."""


class Server:
    """An API server: a URL and a token; its certificate is not verified."""

    def __init__(self, text: str, audit_log: Path | None = None) -> None:
        self._url, _, self._token = text.partition(",")
        self._context = ssl._create_unverified_context()
        self._audit_log = audit_log
        self._read = audit_log.stat().st_size if audit_log else 0

    async def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> HttpAnswer:
        return await asyncio.to_thread(self._send, method, path, body, headers or {})

    def _send(self, method: str, path: str, body: Any, more: dict[str, str]) -> HttpAnswer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = urllib.request.Request(self._url + path, data, headers | more, method=method)
        try:
            with urllib.request.urlopen(sent, context=self._context) as answer:
                warned = answer.headers.get_all("Warning") or []
                made = _changeable(json.loads(answer.read()))
                return _answer(answer.status, {}, warned)._replace(object=made)
        except urllib.error.HTTPError as error:
            warnings = error.headers.get_all("Warning") or []
            try:
                document = json.loads(error.read())
            except ValueError:
                document = {}
            return _answer(error.code, document, warnings)
        except (http.client.HTTPException, OSError) as error:
            return HttpAnswer(0, (f"{self._url}: {error}",), ())

    def annotations(self) -> dict[str, str]:
        """Return the annotations of policies by audit ID, of the requests since the last call."""
        if self._audit_log is None:
            return {}
        with self._audit_log.open() as file:
            file.seek(self._read)
            lines = file.readlines()
            self._read = file.tell()
        return {event["auditID"]: _of_policies(event) for event in map(json.loads, lines)}


def _of_policies(event: dict[str, Any]) -> str:
    kept = {}
    for key, value in (event.get("annotations") or {}).items():
        if _POLICY_KEYS.match(key):
            kept[key] = json.loads(value) if value.startswith("[") else value
    return json.dumps(kept, sort_keys=True)


def _changeable(document: dict[str, Any]) -> str:
    if document.get("kind") != "PolicySubject":
        return ""
    meta = document["metadata"]
    names = ("labels", "annotations", "finalizers", "ownerReferences", "name")
    parts = [document.get("spec"), *(meta.get(name) for name in names)]
    return json.dumps(_plain(parts), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return a value in which 1.0 is 1: servers write such numbers in different ways."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _answer(status: int, document: dict[str, Any], warnings: list[str]) -> HttpAnswer:
    causes = (document.get("details") or {}).get("causes") or []
    told = sorted(f"{each.get('field')}: {each.get('message')}" for each in causes)
    told.append(document.get("reason", ""))
    if not causes:
        told.append(document.get("message", ""))
    # A panic of upstream that it reports as an error of the expression.
    told = [_PANIC.sub(": no such key: * ", each) for each in told]
    # Upstream's name of the type of `self`, which has a number by chance.
    told = [re.sub(r"\bselfType\d+", "object", each) for each in told]
    return HttpAnswer(status, tuple(told), tuple(sorted(warnings)))
