"""Pods of an ordinary user reach the outside by pasta or slirp4netns, which start, end and are
replaced with the node."""

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pods.user_network import Echo, Page, ask, running, served, shell

from kedge.cli.cluster import process
from kedge.node.network.uplink_trial import machine_address

if TYPE_CHECKING:
    from tests.e2e.conftest import User

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0
    or "KEDGE_E2E_KUBECONFIG" in os.environ
    or not all(shutil.which(tool) for tool in ("setpriv", "kubectl", "unshare")),
    reason="becoming another user takes root and setpriv; and a cluster of our own, and kubectl",
)

PACKAGES = {"pasta": "passt", "slirp4netns": "slirp4netns"}
DEVICE = "c 10 200"
FRAME = """import fcntl, socket, struct, sys
address, port, loopback = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"", (address, 9))
rows = [row.split() for row in open("/proc/net/arp").readlines()[1:]]
mac = next(row[3] for row in rows if row[5] == "kuplink")
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("kuplink", 0))
def total(data):
    added = sum(struct.unpack(f">{len(data) // 2}H", data))
    added = (added >> 16) + (added & 0xFFFF)
    return 0xFFFF - (added + (added >> 16) & 0xFFFF)
source = fcntl.ioctl(raw, 0x8915, b"kuplink".ljust(40, b"\\0"))[20:24]
for target, number in ((address, port), ("127.0.0.1", loopback)):
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 32, 1, 0, 64, 17, 0, source,
        socket.inet_aton(target))
    head = head[:10] + struct.pack(">H", total(head)) + head[12:]
    udp = struct.pack(">HHHH", 4000, number, 12, 0) + b"word"
    frame = bytes.fromhex(mac.replace(":", "")) + raw.getsockname()[4] + b"\\x08\\x00" + head + udp
    raw.send(frame)
print("sent")"""


@pytest.fixture(params=sorted(PACKAGES))
def program(request: pytest.FixtureRequest) -> str:
    """The name of a program; it is installed if the machine lacks it."""
    name = str(request.param)
    if shutil.which(name) is None and shutil.which("apt-get") is not None:
        install = ["apt-get", "install", "-qy", "-o", "DPkg::Lock::Timeout=60", PACKAGES[name]]
        for command in (["apt-get", "update", "-q"], install):
            subprocess.run(command, capture_output=True, timeout=120, check=False)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def user(ordinary_user: "User") -> "User":
    """A user who may open /dev/net/tun, as on most machines. Only this user sees that mode."""
    device = ordinary_user.home / "tun"
    subprocess.run(["mknod", "-m", "666", device, *DEVICE.split()], check=True)
    show = f'mount --bind {device} /dev/net/tun && exec "$@"'
    ordinary_user.become = ["unshare", "-m", "sh", "-ec", show, "sh", *ordinary_user.become]
    if ordinary_user.run("sh", "-c", ": <> /dev/net/tun").returncode:
        pytest.skip("this machine has no /dev/net/tun")
    return ordinary_user


def test_pods_reach_the_outside_by_a_program(
    user: "User", program: str, eventually: Callable[..., Any]
) -> None:
    user.does("up", "--nodes=1", f"--way-out={program}")
    eventually(lambda: way_out(user) == program)
    found = carriers(program, user)
    assert len(found) == 1
    shell(user)
    check_what_is_reached(user)
    check_border(user)
    os.kill(found[0], signal.SIGKILL)
    with outside_page() as url:
        # Without the program, the agent forwards.
        assert eventually(lambda: ask(user, url) == "outside")
    eventually(lambda: carriers(program, user) not in ([], found) and way_out(user) == program)
    node = user.states / "default" / "nodes" / "node-1"
    agent = process.running(node, "node")
    assert agent is not None
    before = carriers(program, user)
    os.kill(agent.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{before[0]}").exists())
    eventually(lambda: carriers(program, user) and way_out(user) == program)
    with outside_page() as url:
        assert eventually(lambda: ask(user, url) == "outside")
    user.does("down", "--purge")
    assert not running(user.home)
    assert not carriers(program, user)


def test_the_first_program_that_is_as_good_as_the_forwarder_is_taken(
    user: "User", eventually: Callable[..., Any]
) -> None:
    """The pasta of Debian 12 is not: it does not answer connections that are refused."""
    if shutil.which("slirp4netns") is None:
        pytest.skip("slirp4netns is not installed")
    doctor = json.loads(user.does("doctor", "-o", "json"))
    (shown,) = (each for each in doctor["checks"] if each["name"] == "way out")
    assert shown["found"] == "slirp4netns, which worked in a trial"
    user.does("up", "--nodes=2")
    # The nodes share a network, and so one program.
    shared = {"slirp4netns", "uplink of another node"}
    eventually(lambda: {way_out(user), way_out(user, 2)} == shared)
    assert len(carriers("slirp4netns", user)) == 1


def test_a_program_that_does_not_work_is_named(
    ordinary_user: "User", eventually: Callable[..., Any]
) -> None:
    """The user may not open /dev/net/tun here; elsewhere, nothing is installed."""
    ordinary_user.does("up", "--nodes=1")
    told = eventually(lambda: way_out(ordinary_user))
    if told in PACKAGES:
        pytest.skip(f"{told} works for every user of this machine")
    assert re.fullmatch(r"forwarder \(slirp4netns: .+; pasta: .+\)", told)


def check_what_is_reached(user: "User") -> None:
    """Servers of the machine answer at its address, but not those at its loopback address."""
    here = machine_address()
    with outside_page() as url:
        assert ask(user, url) == "outside"
    with served(http.server.HTTPServer(("127.0.0.1", 0), Page)) as port:
        for address in ("127.0.0.1", here, "198.51.100.2", "198.51.100.3", "10.244.77.1"):
            assert ask(user, f"http://{address}:{port}") == "", address
    talk = """import socket, sys
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.settimeout(3)
channel.sendto(b"word", (sys.argv[1], int(sys.argv[2])))
print(channel.recv(100).decode())"""
    with served(socketserver.UDPServer((here, 0), Echo)) as port:
        words = ("exec", "shell", "--", "python3", "-c", talk)
        assert user.reads(*words, here, str(port)) == "word"


def check_border(user: "User") -> None:
    """A pod with the node's network may send any frame, but the frame gets no further than packets
    of other pods."""
    spec = {"spec": {"hostNetwork": True}}
    overrides = f"--overrides={json.dumps(spec)}"
    user.reads("run", "wide", "--image=host", overrides, "--", "sleep", "1000")
    user.reads("wait", "--for=condition=Ready", "pod/wide", "--timeout=60s")
    here = machine_address()
    with datagrams(here) as outer, datagrams("127.0.0.1") as hidden:
        ports = [str(each.getsockname()[1]) for each in (outer, hidden)]
        words = ("exec", "wide", "--", "python3", "-c", FRAME, here, *ports)
        assert user.reads(*words) == "sent"
        assert outer.recv(100) == b"word"
        hidden.settimeout(1)
        with pytest.raises(TimeoutError):
            hidden.recv(100)


@contextlib.contextmanager
def outside_page() -> Iterator[str]:
    here = machine_address()
    with served(http.server.HTTPServer((here, 0), Page)) as port:
        yield f"http://{here}:{port}"


@contextlib.contextmanager
def datagrams(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind((address, 0))
        made.settimeout(5)
        yield made


def way_out(user: "User", number: int = 1) -> str:
    """The annotation of a node; empty if it has none yet."""
    path = r"-o=jsonpath={.metadata.annotations.kedge\.dev/way-out}"
    return user.kubectl("get", "node", f"node-{number}", path).stdout


def carriers(program: str, user: "User") -> list[int]:
    """The running processes of a program that belong to this user."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name = (each / "cmdline").read_text().split("\0")[0].rpartition("/")[2]
            if name == program and each.stat().st_uid == user.uid:
                found.append(int(each.name))
    return found
