"""`kedge envtest` writes programs, and prints where they are."""

import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.envtest import command
from kedge.cli.failure import Failure


def test_programs_answer_for_their_flags_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kubectl").write_text("#!/bin/sh\n")
    (tools / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    target = tmp_path / "it's here"
    assert command.run(Namespace(directory=target)) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert (target / "kubectl").resolve() == tools / "kubectl"
    before = (target / "etcd").stat().st_mtime_ns
    assert command.run(Namespace(directory=target)) == 0
    assert (target / "etcd").stat().st_mtime_ns == before
    for name, flag in (("etcd", "--unsafe-no-fsync"), ("kube-apiserver", "--etcd-servers")):
        done = subprocess.run([target / name, "--help"], capture_output=True, text=True, check=True)
        assert flag in done.stdout
    done = subprocess.run(
        [target / "kube-apiserver", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Kubernetes v1.")


def test_the_directory_is_in_the_cache(tmp_path: Path) -> None:
    found = command.default_directory({"XDG_CACHE_HOME": str(tmp_path)})
    assert found.parent == tmp_path / "kedge"
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot write the programs to"):
        command.run(Namespace(directory=tmp_path / "file" / "below"))


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
def test_a_program_that_is_not_of_kedge_is_not_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x7fELF")
    words = f"{name} exists: it is not of kedge, and is not replaced; choose another directory"
    with pytest.raises(Failure, match=words):
        command.run(Namespace(directory=tmp_path))
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"\x7fELF"
    # One of another version of kedge is.
    (tmp_path / name).write_text('#!/bin/sh\n# The program of "kedge envtest"\n')
    assert command.run(Namespace(directory=tmp_path)) == 0
    assert "exec" in (tmp_path / name).read_text()
