"""Names of Services in a container without privileges. One cluster of the container has them, so
`make plain` runs this file alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]
EXAMPLE = Path(__file__).parents[3] / "examples/guestbook"
SIGN = "import urllib.request as u; u.urlopen('http://guestbook.{ns}', b'entry=Hello')"


@pytest.fixture(autouse=True)
def plain_level(node: Json) -> None:
    if node["metadata"]["labels"]["kedge.dev/level"] != "plain":
        pytest.skip("the machine allows namespaces: `make plain` runs this in a container")


def test_a_guestbook_finds_its_database_by_name(
    api: Any, namespace: str, pods: Any, any_kubectl: Any, eventually: Callable[..., Any]
) -> None:
    before = Path("/etc/resolv.conf").read_text()
    assert "nameserver 127." in before
    any_kubectl.says(f"create configmap guestbook --from-file={EXAMPLE / 'programs'}")
    any_kubectl.says(f"apply -f {EXAMPLE / 'guestbook.yaml'}")
    any_kubectl.says("rollout status deployment/guestbook --timeout=120s")
    # A pod of the same namespace, and one that names the namespace.
    said = pods.says("near", "getent hosts store && env | grep ^LOCALDOMAIN")
    assert f"store.{namespace}.svc.cluster.local" in said
    assert f"LOCALDOMAIN={namespace}.svc.cluster.local svc.cluster.local" in said
    pods.says("visitor", f'python3 -c "{SIGN.format(ns=namespace)}" && echo signed')
    path = f"/api/v1/namespaces/{namespace}/services/guestbook:http/proxy/"
    eventually(lambda: "<li>Hello" in any_kubectl.says(f"get --raw {path}"))
    # Limits are told where users look for them.
    store = api.get(f"/api/v1/namespaces/{namespace}/pods/store-0")
    found = {each["type"]: each for each in store["status"]["conditions"]}
    assert found["kedge.dev/LimitsEnforced"]["reason"] == "Sampled"
    lines = any_kubectl.says("get pods -o wide").splitlines()
    assert lines[0].split()[-1] == "LIMITS"
    assert next(line for line in lines if line.startswith("store-0")).split()[-1] == "sampled"
    # What the kernel refuses is told with the settings that grant it.
    refused = [each for each in pods.events("store-0", "NotEnforced") if "oom_score_adj" in each]
    assert "--cap-add=SYS_RESOURCE" in refused[0]
