"""`kedge edit`, with a program in the place of an editor."""

import sys
from pathlib import Path

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.edit.editing import edit, parsed, without_comments
from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(autouse=True)
async def settings(server: LocalServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"colour": "blue"}})


def editor(tmp_path: Path, *replacements: tuple[str, str]) -> str:
    """Return an editor that makes one replacement in each run, and keeps what it was shown."""
    script = tmp_path / "editor.py"
    script.write_text(
        f"import sys, pathlib\nsteps = {list(replacements)!r}\n"
        f"runs = pathlib.Path({str(tmp_path)!r})\n"
        "file = pathlib.Path(sys.argv[1])\nn = len(list(runs.glob('run-*')))\n"
        "(runs / f'run-{n}').write_text(file.read_text())\n"
        "if n < len(steps):\n    file.write_text(file.read_text().replace(*steps[n]))\n"
    )
    return f"{sys.executable} {script}"


async def test_a_change_is_written(
    server: LocalServer, there: ApiSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await edit(there, ["cm/a"], editor(tmp_path, ("blue", "red"))) == 0
    assert capsys.readouterr().out == "configmap/a edited\n"
    assert (await server.get(f"{MAPS}/a"))["data"] == {"colour": "red"}


async def test_without_a_change_nothing_is_written(
    there: ApiSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await edit(there, ["cm/a"], editor(tmp_path))
    assert capsys.readouterr().out == "Edit cancelled, no changes made.\n"


async def test_a_refused_text_is_shown_again_with_the_reason(
    server: LocalServer, there: ApiSession, tmp_path: Path
) -> None:
    steps = ("colour: blue", "colour: [1]"), ("colour: [1]", "colour: red")
    await edit(there, ["cm/a"], editor(tmp_path, *steps))
    again = (tmp_path / "run-1").read_text()
    assert "# Error from server (BadRequest): " in again
    assert "colour: [1]" in again
    assert (await server.get(f"{MAPS}/a"))["data"] == {"colour": "red"}


async def test_a_text_that_stays_refused_is_kept_for_the_person(
    there: ApiSession, tmp_path: Path
) -> None:
    with pytest.raises(Failure, match=r"metadata.name cannot be changed; the text is in ") as told:
        await edit(there, ["cm/a"], editor(tmp_path, ("name: a", "name: b")))
    _check_kept(Path(str(told.value).rpartition(" ")[2]))


def _check_kept(kept: Path) -> None:
    assert "name: b" in kept.read_text()
    kept.unlink()


async def test_an_editor_that_does_not_exist_or_fails_is_told(there: ApiSession) -> None:
    with pytest.raises(Failure, match="set KUBE_EDITOR"):
        await edit(there, ["cm/a"], "/no/such/editor")
    with pytest.raises(Failure, match="ended with exit code 1: nothing was changed"):
        await edit(there, ["cm/a"], "false")


def test_comments_and_texts_that_are_no_objects() -> None:
    assert without_comments("# a\nb: 1\n #c\n") == "b: 1\n #c\n"
    for text in ("- a", "a: [", "x"):
        with pytest.raises(ValueError, match="the text is not"):
            parsed(text)
