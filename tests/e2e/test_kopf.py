"""A kopf operator, run as its users run it, on a custom resource."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.conftest import Api, Cluster

OPERATOR = Path(__file__).with_name("operators") / "greetings.py"
GROUP = "greetings.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = {
    "metadata": {"name": f"greetings.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "greetings", "singular": "greeting", "kind": "Greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"to": {"type": "string"}}},
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture
def operator(
    api: Api, cluster: Cluster, namespace: str, tmp_path: Path, eventually: Callable[..., Any]
) -> Iterator[None]:
    """The operator at work on the namespace's greetings."""
    if importlib.util.find_spec("kopf") is None:
        pytest.skip("this environment lacks kopf: pip install 'kedge[clients]'")
    api.create(DEFINITIONS, DEFINITION)
    eventually(lambda: api.serves(f"/apis/{GROUP}/v1/greetings"))
    log = tmp_path / "operator.log"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "kopf",
                "run",
                "--verbose",
                f"--namespace={namespace}",
                OPERATOR,
            ],
            env=cluster.environment,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            yield
            said = log.read_text()
            assert process.poll() is None, said
            assert "Traceback" not in said, said
        finally:
            process.terminate()
            process.wait(20)
            api.delete(f"{DEFINITIONS}/greetings.{GROUP}")


def test_an_operator_creates_updates_and_says_good_bye(
    operator: None, api: Api, namespace: str, eventually: Callable[..., Any]
) -> None:
    greetings = f"/apis/{GROUP}/v1/namespaces/{namespace}/greetings"
    texts = f"/api/v1/namespaces/{namespace}/configmaps"
    api.create(
        greetings,
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Greeting",
            "metadata": {"name": "one"},
            "spec": {"to": "Ann"},
        },
    )
    eventually(lambda: api.exists(f"{texts}/one"))
    text = api.get(f"{texts}/one")
    assert text["data"] == {"text": "Hello Ann"}
    assert text["metadata"]["ownerReferences"][0]["kind"] == "Greeting"
    created = eventually(lambda: api.get(f"{greetings}/one").get("status", {}).get("create"))
    assert created == {"text": "Hello Ann"}
    assert api.get(f"{greetings}/one")["metadata"]["finalizers"] == [f"{GROUP}/good-bye"]

    api.merge(f"{greetings}/one", {"spec": {"to": "Bob"}})
    eventually(lambda: api.get(f"{greetings}/one")["status"].get("greeted") == "Bob")
    assert api.get(f"{texts}/one")["data"] == {"text": "Hello Bob"}

    api.delete(f"{greetings}/one")
    eventually(lambda: not api.exists(f"{greetings}/one"))
    assert api.get(f"{texts}/one-gone")["data"] == {"text": "Bye Bob"}

    def told() -> list[str]:
        events = api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return [event["message"] for event in events if event["reason"] == "Greeted"]

    assert eventually(told) == ["Hello Ann"]
