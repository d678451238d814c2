"""Programs for the way out: how they are called, and that they end with their parent."""

import os
import shutil
import stat
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kedge.node.network import uplink_program
from kedge.node.network.uplink_program import UplinkNetwork, UplinkProcess, UplinkProgram
from kedge.testing.network import NetworkNamespace

BETWEEN = UplinkNetwork(IPv4Network("198.51.100.0/24"))


def test_pasta_leads_to_no_loopback_address_and_opens_no_ports() -> None:
    command = UplinkProgram("pasta", "/usr/bin/pasta").command(BETWEEN, 5, 6)
    assert command[0] == "/usr/bin/pasta"
    ports = ("--tcp-ports=none", "--udp-ports=none", "--tcp-ns=none", "--udp-ns=none")
    assert {"--no-map-gw", "--foreground", "--ipv4-only", *ports} <= set(command)
    assert "--address=198.51.100.101" in command
    assert "--gateway=198.51.100.2" in command
    assert command[-2:] == ["--userns=/proc/self/fd/5", "--netns=/proc/self/fd/6"]


def test_slirp4netns_leads_to_no_loopback_address_and_confines_itself() -> None:
    command = UplinkProgram("slirp4netns", "/bin/slirp4netns").command(BETWEEN, 5, 6)
    confined = {"--enable-sandbox", "--enable-seccomp"}
    assert {"--disable-host-loopback", "--disable-dns", *confined} <= set(command)
    assert command[-2:] == ["/proc/self/fd/6", "koutside"]
    assert "--cidr=198.51.100.0/24" in command


def test_programs_are_found_in_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "pasta"
    made.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert uplink_program.find("pasta") == UplinkProgram("pasta", str(made))
    assert uplink_program.find("slirp4netns") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="making a network namespace takes root")
async def test_last_words_of_a_program_are_told(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    made = tmp_path / "pasta"
    made.write_text(f"#!{shell}\necho one >&2; echo two >&2; echo three >&2; exit 3\n")
    made.chmod(stat.S_IRWXU)
    inside = NetworkNamespace()
    try:
        descriptor = os.open(inside.path, os.O_RDONLY)
        program = UplinkProgram("pasta", str(made))
        process = await UplinkProcess.start(program, BETWEEN, descriptor)
        await process.wait(30)
        assert process.end_reason == "it ended with 3: two; three"
        await process.end()
        os.close(descriptor)
    finally:
        inside.end()
