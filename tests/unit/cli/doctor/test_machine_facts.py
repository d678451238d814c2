import os
from pathlib import Path

import pytest

from kedge.cli.doctor import machine_facts
from kedge.cli.doctor.machine_facts import collect
from kedge.supervisor.machine_capabilities import PLAIN, of_level


def test_the_disk_of_a_directory_that_does_not_exist_yet_is_that_above(tmp_path: Path) -> None:
    found = collect(tmp_path / "later" / "kedge")
    assert found.is_state_writable
    assert 0 <= found.disk_free <= found.disk_size
    assert found.kernel == os.uname().release
    assert found.is_root is (os.geteuid() == 0)
    assert not (tmp_path / "later").exists()


def test_without_namespaces_no_network_is_tried() -> None:
    assert all(machine_facts._network(of_level(PLAIN)))


@pytest.mark.parametrize(
    ("printed", "version"),
    [('{"clientVersion": {"gitVersion": "v1.36.1"}}', "v1.36.1"), ("[]", ""), ("nonsense", "")],
)
def test_the_version_of_kubectl_is_read(tmp_path: Path, printed: str, version: str) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    assert machine_facts._kubectl_version(str(program)) == version


def test_a_program_that_fails_has_no_version(tmp_path: Path) -> None:
    assert machine_facts._kubectl_version(str(tmp_path / "kubectl")) == ""
