"""Messages between processes: plugins and drivers to the agent, the agent to its supervisor."""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kedge.deviceplugin import messages
from kedge.deviceplugin.wire import Malformed, decode
from kedge.dra import messages as claims
from kedge.node.storage import csi_messages as volumes
from kedge.supervisor import wire

KINDS = [
    messages.RegisterRequest,
    messages.DevicePluginOptions,
    messages.ListAndWatchResponse,
    messages.AllocateResponse,
    messages.PreferredAllocationResponse,
    messages.PluginInfo,
    claims.PrepareResponse,
    claims.UnprepareResponse,
    claims.HealthResponse,
    volumes.NodeInfoResponse,
    volumes.NodeCapabilitiesResponse,
    volumes.ExpandVolumeResponse,
    volumes.VolumeStatsResponse,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.binary(max_size=300))
@example(data=b"\x0a\xff\xff\xff\xff\x0f")
@example(data=b"\xff" * 300)
@example(data=b"\x0a\x02\x0a\x00" * 5_000)
def test_a_message_of_a_plugin_or_driver_is_read_or_malformed(kind: type, data: bytes) -> None:
    with contextlib.suppress(Malformed):
        decode(kind, data)


DEEDS = st.sampled_from(
    [
        *("hello", "watch", "list", "get", "run_sandbox", "settle_sandbox", "stop_sandbox"),
        *("remove_sandbox", "create", "start", "stop", "remove", "update", "exec", "resize"),
        *(
            "keep_sockets",
            "kept_sockets",
            "attach",
            "reopen",
            "wait",
            "wait_command",
            "kill_command",
            "dial",
            "nonsense",
        ),
    ]
)
FIELDS = st.sampled_from(
    [
        *("sandbox", "container", "name", "about", "shared", "plan", "ips", "command", "argv"),
        *("signal", "grace", "resources", "width", "height", "user", "env", "timeout"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just("../.."),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3),
    max_leaves=8,
)
REQUESTS = st.builds(
    lambda deed, identity, fields: {**fields, "do": deed, **identity},
    DEEDS | VALUES,
    st.sampled_from([{"id": 1}, {"id": 1}, {"id": 1}, {}]),
    st.dictionaries(FIELDS, VALUES, max_size=4),
)
PACKETS = (
    REQUESTS.map(lambda request: json.dumps(request).encode())
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.binary(min_size=1, max_size=64)
    | st.just(b"file")
)


class SupervisorProcess:
    """A supervisor of its own, and connections to it."""

    def __init__(self, directory: Path) -> None:
        self._path = str(directory / wire.SOCKET)
        command = [sys.executable, "-m", "kedge.supervisor", str(directory)]
        subprocess.run(command, check=True, timeout=30)

    def connect(self) -> socket.socket:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connected.settimeout(10)
        connected.connect(self._path)
        return connected

    def ask(self, do: str) -> Any:
        with self.connect() as connected:
            connected.send(json.dumps({"id": 7, "do": do}).encode())
            return json.loads(connected.recv(1 << 16))["result"]


@pytest.fixture(scope="module")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisorProcess]:
    running = SupervisorProcess(tmp_path_factory.mktemp("supervisor"))
    yield running
    with contextlib.suppress(OSError, KeyError):
        running.ask("shutdown")


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.lists(PACKETS, min_size=1, max_size=5))
def test_no_message_ends_the_supervisor(
    supervisor: SupervisorProcess, packets: list[bytes]
) -> None:
    before = supervisor.ask("hello")["pid"]
    with supervisor.connect() as connected, contextlib.suppress(OSError):
        for packet in packets:
            connected.send(packet)
    assert supervisor.ask("hello")["pid"] == before
