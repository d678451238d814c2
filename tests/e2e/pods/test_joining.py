"""A machine joins the cluster of another one; two network namespaces stand for the two machines."""

import base64
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kedge.cli.cluster import process

SERVER, NODE = "10.213.7.1", "10.213.7.2"
TOOLS = ("ip", "nsenter", "kubectl")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in TOOLS),
    reason=f"network namespaces take root, a cluster of our own, and {', '.join(TOOLS)}",
)


class Machine:
    """What can be done on one of the two."""

    def __init__(self, namespace: str, home: Path) -> None:
        self.namespace = namespace
        self.home = home
        self.state = home / "state"
        home.mkdir()
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("KEDGE_", "KUBE"))}
        own = {"HOME": str(home), "XDG_STATE_HOME": str(home / "states")}
        self.environment = clean | own | {"KUBECONFIG": str(home / "kubeconfig")}

    def command(self, *words: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.namespace}", *words]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def says(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{shlex.join(words)}: {done.stderr}{done.stdout}"
        return done.stdout.strip()

    def kedge(self, *arguments: str) -> str:
        return self.says(sys.executable, "-m", "kedge", *arguments, f"--state={self.state}")

    def kubectl(self, line: str) -> str:
        return self.says("kubectl", *shlex.split(line))

    @contextmanager
    def node(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        """A node agent in the foreground, ready; ended as an operator would end it."""
        words = [sys.executable, "-m", "kedge", "node", *arguments, f"--state={self.state}"]
        with subprocess.Popen(
            self.command(*words),
            env=self.environment,
            cwd=self.home,
            stderr=subprocess.PIPE,
            text=True,
        ) as agent:
            assert agent.stderr is not None
            said = []
            try:
                for line in agent.stderr:
                    said.append(line)
                    if "is ready" in line:
                        break
                else:
                    raise AssertionError("".join(said))
                yield agent
            finally:
                agent.send_signal(signal.SIGTERM)
                agent.wait(20)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """Two that have nothing in common but a cable."""
    mark = uuid.uuid4().hex[:6]
    here, there = f"kedge-{mark}-a", f"kedge-{mark}-b"
    made = [Machine(here, tmp_path / "a"), Machine(there, tmp_path / "b")]
    try:
        for namespace in (here, there):
            ip(f"netns add {namespace}")
            ip(f"-n {namespace} link set lo up")
        ip(f"link add cable netns {here} type veth peer name cable netns {there}")
        for namespace, address in ((here, SERVER), (there, NODE)):
            ip(f"-n {namespace} addr add {address}/30 dev cable")
            ip(f"-n {namespace} link set cable up")
        yield made[0], made[1]
    finally:
        for machine in reversed(made):
            machine.run(
                sys.executable, "-m", "kedge", "down", "--purge", f"--state={machine.state}"
            )
            subprocess.run(["ip", "netns", "del", machine.namespace], check=False)


def ip(line: str) -> None:
    subprocess.run(["ip", *line.split()], check=True, capture_output=True)


def invitation(server: Machine) -> list[str]:
    """The words after `kedge node` of the command that the server's machine prints."""
    printed = shlex.split(server.kedge("token", "create", "--print-join-command"))
    assert printed[:2] == ["kedge", "node"]
    return printed[2:]


def up(server: Machine, name: str) -> None:
    server.kedge("up", f"--name={name}", "--nodes=0", "--host=0.0.0.0")


def test_a_machine_joins_runs_pods_and_leaves(
    machines: tuple[Machine, Machine], eventually: Callable[..., Any]
) -> None:
    server, other = machines
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    up(server, name)
    words = invitation(server)
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
    links = subprocess.check_output(["ip", "-n", other.namespace, "-o", "link"], text=True)
    assert sorted(line.split()[1].partition("@")[0].rstrip(":") for line in links.splitlines()) == [
        "cable",
        "lo",
    ]


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
    flags = dict(zip(*[iter(invitation(server))] * 2, strict=True))

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
