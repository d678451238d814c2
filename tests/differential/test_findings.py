"""Findings of comparisons with kube-apiserver: each is a case of the table beside this file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.testing.local_server import LocalServer

FINDINGS = yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text())


@pytest.mark.parametrize("case", FINDINGS, ids=lambda case: case["finding"])
async def test_a_finding_stays_mended(case: dict[str, Any]) -> None:
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as server:
        for method, path, *rest in case["requests"]:
            body = rest[0].encode() if rest and isinstance(rest[0], str) else (rest or [None])[0]
            kind = rest[1] if len(rest) > 1 else "application/json"
            answer = await server.call(method, path, body, content_type=kind)
    assert answer.status == case["code"]
    assert list(_missing(case["answer"], answer.document)) == []


def _missing(expected: Any, found: Any, path: str = "") -> Any:
    """Yield the paths at which an answer is not as expected; it may have more fields."""
    if isinstance(expected, dict) and expected and isinstance(found, dict):
        for key, value in expected.items():
            yield from _missing(value, found.get(key, "<absent>"), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, two) in enumerate(zip(expected, found, strict=True)):
            yield from _missing(one, two, f"{path}[{index}]")
    elif expected != found:
        yield f"{path}: {found!r}"
