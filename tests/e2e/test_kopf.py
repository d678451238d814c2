"""A kopf operator, run as its users run it, on a custom resource in a cluster of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import kedge

pytest.importorskip("kopf", reason="this environment lacks kopf: pip install 'kedge[clients]'")

OPERATOR = Path(__file__).with_name("operators") / "greetings.py"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: greetings.greetings.example.com}
spec:
  group: greetings.example.com
  scope: Namespaced
  names: {plural: greetings, singular: greeting, kind: Greeting}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {to: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
GREETING = """
apiVersion: greetings.example.com/v1
kind: Greeting
metadata: {name: one}
spec: {to: NAME}
"""


@pytest.fixture
def c(kedge_fresh_cluster: kedge.Cluster, tmp_path: Path) -> Iterator[kedge.Cluster]:
    """A cluster with the operator at work on greetings."""
    c, log = kedge_fresh_cluster, tmp_path / "operator.log"
    c.apply(DEFINITION)
    command = [
        sys.executable,
        "-m",
        "kopf",
        "run",
        "--verbose",
        "--namespace=default",
        str(OPERATOR),
    ]
    environment = os.environ | {"KUBECONFIG": str(c.kubeconfig)}
    with (
        log.open("w") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield c
            assert process.poll() is None, log.read_text()
            assert "Traceback" not in log.read_text(), log.read_text()
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.kedge(nodes=0, wait=60)
def test_an_operator_creates_updates_and_says_good_bye(
    c: kedge.Cluster, eventually: Callable[..., Any]
) -> None:
    c.apply(GREETING.replace("NAME", "Ann"))
    c.wait("greeting/one", lambda found: "create" in found.get("status", {}))
    text, greeting = c.get("cm/one"), c.get("greeting/one")
    assert text["data"] == {"text": "Hello Ann"}
    assert text["metadata"]["ownerReferences"][0]["kind"] == "Greeting"
    assert greeting["status"]["create"] == {"text": "Hello Ann"}
    assert greeting["metadata"]["finalizers"] == ["greetings.example.com/good-bye"]

    c.apply(GREETING.replace("NAME", "Bob"))
    c.wait("greeting/one", lambda found: found["status"].get("greeted") == "Bob")
    assert c.get("cm/one")["data"] == {"text": "Hello Bob"}

    c.delete("greeting/one")
    c.wait("greeting/one", "deleted")
    assert c.get("cm/one-gone")["data"] == {"text": "Bye Bob"}

    def told() -> list[str]:
        return [each["message"] for each in c.events() if each["reason"] == "Greeted"]

    assert eventually(told) == ["Hello Ann"]
