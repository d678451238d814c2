"""The tables of cases, each driven through the API."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.apiserver.admission.limit_ranger import documents
from tests.unit.apiserver.admission.limit_ranger.reference import ANNOTATION, outcome, sentence

from kedge.testing.local_server import LocalAnswer, LocalServer

HERE = Path(__file__).parent
CASES = [
    case
    for table in ("cases.yaml", "selectors.yaml")
    for case in yaml.safe_load((HERE / table).read_text())
]
CORE = "/api/v1/namespaces/default"


def by_name(case: dict[str, Any]) -> str:
    return str(case["name"])


async def create(server: LocalServer, case: dict[str, Any]) -> LocalAnswer:
    for name, items in case["limitranges"].items():
        await server.post(f"{CORE}/limitranges", documents.limit_range(name, items))
    if "pod" in case:
        return await server.call("POST", f"{CORE}/pods", documents.pod(case["pod"]))
    claim = documents.claim(case["claim"])
    return await server.call("POST", f"{CORE}/persistentvolumeclaims", claim)


def written(resources: dict[str, Any]) -> dict[str, Any]:
    """The same with every amount as text."""
    return {
        name: {kind: {k: str(v) for k, v in given.items()} for kind, given in each.items()}
        for name, each in resources.items()
    }


@pytest.mark.parametrize("case", [c for c in CASES if "admitted" in c], ids=by_name)
async def test_admitted(limited: LocalServer, case: dict[str, Any]) -> None:
    answer = await create(limited, case)
    assert answer.status == 201, answer.message
    stored = await limited.get(
        f"{CORE}/{'pods/p' if 'pod' in case else 'persistentvolumeclaims/v'}"
    )
    assert documents.resources(stored) == written(case["admitted"])
    assert stored["metadata"].get("annotations", {}).get(ANNOTATION) == case.get("annotation")


@pytest.mark.parametrize("case", [c for c in CASES if c.get("refused") == 403], ids=by_name)
async def test_forbidden(limited: LocalServer, case: dict[str, Any]) -> None:
    answer = await create(limited, case)
    plural, name = ("pods", "p") if "pod" in case else ("persistentvolumeclaims", "v")
    assert answer.message == f'{plural} "{name}" is forbidden: {sentence(case["messages"])}'
    assert answer.document == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": answer.message,
        "reason": "Forbidden",
        "details": {"name": name, "kind": plural},
        "code": 403,
    }
    assert (await limited.get(f"{CORE}/{plural}"))["items"] == []


@pytest.mark.parametrize("case", [c for c in CASES if c.get("refused") == 422], ids=by_name)
async def test_invalid(limited: LocalServer, case: dict[str, Any]) -> None:
    answer = await create(limited, case)
    assert answer.status == 422
    assert answer.message == f'Pod "p" is invalid: {sentence(case["messages"])}'
    assert (await limited.get(f"{CORE}/pods"))["items"] == []


PLAIN = [
    case
    for case in CASES
    if "pod" in case
    and "told as they were written" not in case["name"]
    and "restartPolicy=" not in str(case)
]
"""The reference knows neither kept spellings nor many fields."""


@pytest.mark.parametrize("case", PLAIN, ids=by_name)
def test_the_reference_agrees(case: dict[str, Any]) -> None:
    """The second reading of the rules is a judge, so it is judged by the same table."""
    found = outcome(documents.pod(case["pod"]), case["limitranges"])
    assert found.status == case.get("refused", 201)
    assert found.messages == (case["messages"] if found.status == 403 else [])
    if found.status == 422:
        assert [f"{field}: {why}" for field, why in found.faults] == case["messages"]
    if found.status == 201:
        kept = {n: {k: v for k, v in each.items() if v} for n, each in found.resources.items()}
        assert kept == written(case["admitted"])
        assert found.annotation in (case.get("annotation"), "")
