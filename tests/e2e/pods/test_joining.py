"""A machine joins the cluster of another one; two network namespaces stand for the two machines."""

import base64
import os
import shutil
import ssl
import sys
import uuid
from collections.abc import Callable, Iterator
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process
from kedge.testing.machines import LINK, Machine, Wiring

SERVER, NODE = "10.213.7.1", "10.213.7.2"
TOOLS = ("nsenter", "unshare", "kubectl")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in TOOLS),
    reason=f"network namespaces take root, a cluster of our own, and {', '.join(TOOLS)}",
)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two that have nothing in common but a cable."""
    made = [Machine(tmp_path / "a"), Machine(tmp_path / "b")]
    wiring = Wiring()
    try:
        wiring.add_segment("cable")
        for machine, address in zip(made, (SERVER, NODE), strict=True):
            wiring.connect(machine, "cable", IPv4Interface(f"{address}/30"), None)
        yield made[0], made[1]
    finally:
        for machine in reversed(made):
            machine.end()
        wiring.end()


def up(server: Machine, name: str) -> None:
    server.kedge("up", f"--name={name}", "--nodes=0", "--host=0.0.0.0")


def test_a_machine_joins_runs_pods_and_leaves(
    machines: tuple[Machine, Machine], eventually: Callable[..., Any]
) -> None:
    server, other = machines
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    up(server, name)
    words = server.join_arguments()
    assert words[1].startswith(f"https://{SERVER}:")
    with other.node(*words, f"--name={name}", "--node-name=far"):
        node = server.kubectl("get node far -o jsonpath={.status.addresses[*].address}")
        assert node == f"{NODE} far"
        server.kubectl("run hello --image=host -- sh -c 'echo hello; exec sleep 1000'")
        server.kubectl("wait --for=condition=Ready pod/hello --timeout=30s")
        assert server.kubectl("get pod hello -o jsonpath={.spec.nodeName}") == "far"
        requests = server.kubectl("get csr -o jsonpath={.items[*].spec.signerName}")
        assert sorted(requests.split()) == [
            "kubernetes.io/kube-apiserver-client-kubelet",
            "kubernetes.io/kubelet-serving",
        ]
        check_files(other.state / "nodes" / "far" / "pki")
        eventually(lambda: process.running(other.state / "nodes" / "far", "node"))
    before = server.kubectl("get pod hello -o jsonpath={.status.containerStatuses[0].containerID}")
    # The same machine after its agent was restarted: it knows who it is and where it belongs.
    with other.node(f"--name={name}"):
        server.kubectl("wait --for=condition=Ready pod/hello --timeout=30s")
        after = server.kubectl(
            "get pod hello -o jsonpath={.status.containerStatuses[0].containerID}"
        )
        assert after == before
    assert 'Node "far" was' in other.kedge("down", "--purge")
    assert not other.state.exists()
    assert other.links() == {"lo", LINK}


def check_files(pki: Path) -> None:
    assert {each.name for each in pki.iterdir()} == {
        "ca.crt",
        "node.crt",
        "node.key",
        "serving.crt",
    }
    assert {each.stat().st_mode & 0o777 for each in pki.iterdir()} == {0o600}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "serving.crt", pki / "node.key")


def test_a_machine_joins_nobody_but_the_cluster_it_was_told_of(
    machines: tuple[Machine, Machine],
) -> None:
    server, other = machines
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    up(server, name)
    flags = dict(zip(*[iter(server.join_arguments())] * 2, strict=True))

    def refusal(**changes: str) -> str:
        told = {**flags, **{f"--{k.replace('_', '-')}": v for k, v in changes.items()}}
        words = [word for flag, value in told.items() if value for word in (flag, value)]
        done = other.run(sys.executable, "-m", "kedge", "node", *words, f"--state={other.state}")
        assert done.returncode == 1, done.stderr
        assert not list(other.state.glob("nodes/*/pki/node.crt"))
        return done.stderr

    assert "does not belong to the cluster" in refusal(ca_cert_hash=f"sha256:{'0' * 64}")
    assert "cannot be verified" in refusal(ca_cert_hash="")
    assert "token is unknown or has expired" in refusal(token="abcdef.0123456789abcdef")
    info = server.kubectl(
        "get configmap -n kube-public cluster-info -o jsonpath={.data.kubeconfig}"
    )
    assert base64.b64encode((server.state / "pki" / "ca.crt").read_bytes()).decode() in info
