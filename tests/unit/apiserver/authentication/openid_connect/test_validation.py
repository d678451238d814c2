import re
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver.authentication.openid_connect import configuration
from kedge.machinery import yaml_text

CASES = yaml_text.read((Path(__file__).parent / "configurations.yaml").read_bytes())


def file(case: dict[str, Any]) -> dict[str, Any]:
    """A valid configuration with the changes of a case."""
    entry: dict[str, Any] = {
        "issuer": {"url": "https://issuer", "audiences": ["a"]},
        "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
    }
    for path, value in case.get("with", {}).items():
        at = entry
        *parents, last = path.split(".")
        for part in parents:
            at = at.setdefault(part, {})
        at[last] = value
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
    changes: dict[str, Any] = case.get("file", {})
    return head | {"jwt": [entry]} | changes


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_errors_are_those_of_kubernetes(case: dict[str, Any]) -> None:
    if "error" not in case:
        configuration.parse(file(case))
        return
    with pytest.raises(ValueError, match=f"^{re.escape(case['error'])}"):
        configuration.parse(file(case))


def test_an_entry_that_occurs_twice_is_refused() -> None:
    entry = file({})["jwt"][0]
    with pytest.raises(ValueError, match='url: Duplicate value: "https://issuer"'):
        configuration.parse(file({"file": {"jwt": [entry, entry]}}))
    with pytest.raises(ValueError, match="jwt: Too many: 65: must have at most 64 items"):
        configuration.parse(file({"file": {"jwt": [entry] * 65}}))


def test_a_file_without_content_is_refused() -> None:
    with pytest.raises(ValueError, match="empty config data"):
        configuration.parse(None)
