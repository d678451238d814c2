"""The servers for other clusters as Deployments, behind kedge's own API server."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.e2e.conftest import eventually, ok

from kedge.apiserver import pki

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "examples" / "aggregated-metrics" / "deployment.yaml"
NAME = "kedge-metrics.kube-system.svc"

pytestmark = [
    pytest.mark.usefixtures("pod_network"),
    pytest.mark.skipif(os.geteuid() != 0, reason="pods read this checkout as root"),
]


def adapted(document: dict[str, Any], *further: str) -> dict[str, Any]:
    """A Deployment with the program of this checkout instead of an image."""
    if document["kind"] == "Deployment":
        pod = document["spec"]["template"]["spec"]
        del pod["securityContext"]
        container = pod["containers"][0]
        container["image"] = "host"
        container["command"] = [sys.executable, "-m", *container["command"]]
        container["args"] = [*container["args"], *further]
        del container["securityContext"]
        # The image hides both: the checkout, and Python if it is in a home directory.
        for name, path in (("checkout", str(ROOT)), ("python", sys.base_prefix)):
            pod["volumes"].append({"name": name, "hostPath": {"path": path}})
            mount = {"name": name, "mountPath": path, "readOnly": True}
            container["volumeMounts"].append(mount)
    return document


def test_the_deployment_serves_both_groups(terminal: Terminal, tmp_path: Path) -> None:
    ok(terminal.kedge("up"))
    identity = pki.ensure(tmp_path / "pki", [NAME])
    files = (identity.directory / "server.crt", identity.directory / "server.key")
    names = [f"--{what}={path}" for what, path in zip(("cert", "key"), files, strict=True)]
    ok(
        terminal.kubectl(
            "create", "secret", "tls", "kedge-metrics-tls", "--namespace=kube-system", *names
        )
    )
    bundle = base64.b64encode(identity.ca_pem).decode()
    documents = yaml.safe_load_all(MANIFESTS.read_text().replace("CA_BUNDLE", bundle))
    text = yaml.safe_dump_all(adapted(each, "--metrics-resolution=10s") for each in documents)
    ok(terminal.kubectl("apply", "-f", "-", input=text))
    wait_for(terminal, "kedge-metrics")
    selected = "app.kubernetes.io/name=kedge-metrics"
    ok(terminal.kubectl("wait", "apiservice", "-l", selected, "--for=condition=Available"))
    path = "/apis/metrics/v1alpha1/nodes/node-1"
    usage = json.loads(eventually(lambda: terminal.kubectl("get", "--raw", path).stdout, 50))
    assert usage["machine"]["10s"]["mean"].keys() == {"cpu", "memory"}
    shown = eventually(lambda: terminal.kubectl("top", "node", "--no-headers").stdout, 50)
    assert shown.split()[0] == "node-1"
    # It is the pod that answers, as the user whom the API server names.
    refused = terminal.kubectl("get", "--raw", path, "--as=eve")
    assert "Forbidden" in refused.stderr
    ok(terminal.kubectl("delete", "deployment", "kedge-metrics", "--namespace=kube-system"))
    eventually(lambda: "MissingEndpoints" in told(terminal, "get", "apiservices"))


def wait_for(terminal: Terminal, deployment: str) -> None:
    what = ("wait", f"deployment/{deployment}", "--namespace=kube-system")
    ok(terminal.kubectl(*what, "--for=condition=Available", "--timeout=50s"))


def test_the_printed_deployment_decides_about_pods(terminal: Terminal, tmp_path: Path) -> None:
    ok(terminal.kedge("up", "--upstream-only"))
    state = f"--state={tmp_path / 'webhook'}"
    text = ok(terminal.kedge("admission-webhook", state, "--print-manifests", "--image=host"))
    documents = [adapted(each) for each in yaml.safe_load_all(text)]
    ok(terminal.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(documents)))
    wait_for(terminal, "kedge-admission-webhook")
    limit = {"type": "Pod", "selector": {"matchLabels": {"run": "p"}}, "max": {"cpu": "1"}}
    limits = {
        "apiVersion": "kedge.dev/v1",
        "kind": "LimitRange",
        "metadata": {"name": "p"},
        "spec": {"limits": [limit]},
    }
    ok(terminal.kubectl("apply", "-f", "-", input=json.dumps(limits)))
    run = ("run", "p", "--image=host", "--dry-run=server")
    eventually(lambda: "maximum cpu usage per Pod is 1" in told(terminal, *run))


def told(terminal: Terminal, *arguments: str) -> str:
    done = terminal.kubectl(*arguments)
    return done.stdout + done.stderr
