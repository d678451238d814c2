"""Keys and certificates by a process that ends afterwards."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kedge.apiserver import issuer_process, pki
from kedge.apiserver.authentication.keys import SigningKey
from kedge.machinery.certificates import names_host
from kedge.machinery.clock import SystemClock

NOW = SystemClock().now()
HOSTS = ("node-1", "10.244.0.1")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An authority, and a node with its first certificate below it."""
    pki.ensure(tmp_path / "pki", ())
    pki.ensure_node(tmp_path / "pki", "node-1", ("node-1",), tmp_path / "node", NOW)
    return tmp_path


def without_library(script: str) -> None:
    """Run statements where the library is not loaded, and see that they do not load it."""
    tail = "; import sys; sys.exit('cryptography' in sys.modules)"
    subprocess.run([sys.executable, "-P", "-c", script + tail], check=True)


def test_a_key_is_made_without_loading_the_library_here(tmp_path: Path) -> None:
    without_library(
        "from pathlib import Path; from kedge.apiserver import issuer_process;"
        f"issuer_process.make_signing_key(Path({str(tmp_path)!r}))"
    )
    made = SigningKey(tmp_path)
    made.check()
    assert made.is_made
    assert made.signed(b"x", made.sign(b"x"))


def test_a_certificate_is_issued_without_loading_the_library_here(directory: Path) -> None:
    where = (
        f"Path({str(directory / 'pki')!r}), 'node-1', {HOSTS}, Path({str(directory / 'node')!r})"
    )
    without_library(
        "from datetime import datetime; from pathlib import Path;"
        "from kedge.apiserver import issuer_process;"
        f"issuer_process.ensure_serving({where}, datetime.fromisoformat({NOW.isoformat()!r}))"
    )
    pem = (directory / "node" / "serving.crt").read_bytes()
    assert all(names_host(pem, host) for host in HOSTS)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of processes, none of which succeeds."""
    commands: list[list[str]] = []

    def run(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(words)
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_a_process_that_has_the_library_does_the_work_itself(
    tmp_path: Path, started: list[list[str]]
) -> None:
    assert "cryptography" in sys.modules
    issuer_process.make_signing_key(tmp_path)
    assert SigningKey(tmp_path).is_made
    assert started == []


def test_if_the_other_process_fails_this_one_does_the_work(
    directory: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "cryptography")
    issuer_process.ensure_serving(directory / "pki", "node-1", HOSTS, directory / "node", NOW)
    assert len(started) == 1
    assert pki.is_serving(directory / "node", HOSTS, NOW)


def test_a_lasting_certificate_is_kept(directory: Path, started: list[list[str]]) -> None:
    work = (directory / "pki", "node-1", HOSTS, directory / "node")
    issuer_process.ensure_serving(*work, NOW)
    first = (directory / "node" / "serving.crt").read_bytes()
    issuer_process.ensure_serving(*work, NOW)
    assert (directory / "node" / "serving.crt").read_bytes() == first
    issuer_process.ensure_serving(*work, NOW + timedelta(days=360))
    assert (directory / "node" / "serving.crt").read_bytes() != first
