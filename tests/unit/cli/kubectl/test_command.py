"""`kedge kubectl` passes everything on."""

import os
from pathlib import Path

import pytest

from kedge.cli.kubectl import release
from kedge.cli.main import run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []

    def execute(program: Path, words: list[str]) -> None:
        found.append((str(program), words))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", execute)
    return found


def test_the_kubectl_on_the_path_gets_all_words(
    started: list[tuple[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit):
        run(["kubectl", "-n", "x", "get", "pods", "--", "--help"])
    assert started == [(str(program), ["kubectl", "-n", "x", "get", "pods", "--", "--help"])]


def test_without_one_it_is_fetched_once(
    started: list[tuple[str, list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Path] = []

    def fetch(target: Path) -> None:
        fetched.append(target)
        target.parent.mkdir(parents=True)
        target.write_text("")
        target.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(release, "fetch", fetch)
    for _ in range(2):
        with pytest.raises(SystemExit):
            run(["kubectl", "version"])
    kept = tmp_path / "cache" / "kedge" / "kubectl-1.36" / "kubectl"
    assert fetched == [kept]
    assert started == [(str(kept), ["kubectl", "version"])] * 2


def test_its_own_help_is_kedges(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["kubectl", "--help"])
    assert "usage: kedge kubectl" in capsys.readouterr().out
