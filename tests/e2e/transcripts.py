"""Transcripts of pages: the commands of their console blocks, replayed and compared."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal

ROOT = Path(__file__).resolve().parents[2]
HUGE_PAGES = Path("docs/seeds/002-device-plugins.md")
"""Reserves huge pages of the machine, as examples/fpga does: both run in one file, thus in turn."""
COPIED = ("examples", "docs/seeds", "docs/tutorials")
"""Folders whose files the commands name."""
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDED = {"python -m pytest": "kubernetes", "nohup kopf": "kopf"}
"""Packages without which a command cannot be tried."""


class Step(NamedTuple):
    """A command, and what it prints."""

    command: str
    output: list[str]


def steps(page: str) -> list[Step]:
    """The `$ command` lines of all console blocks, each with the lines that follow it."""
    found: list[Step] = []
    for line in "".join(BLOCK.findall(page)).splitlines():
        if line.startswith("$ "):
            found.append(Step(line[2:], []))
        else:
            found[-1].output.append(line)
    return found


def pattern(output: list[str]) -> str:
    """What matches an output: `...` is any text; alone on a line, any number of lines."""
    lines = []
    for line in output:
        if line == "...":
            lines.append(r"(?:.*\n)*?")
        else:
            lines.append(re.escape(squeezed(line)).replace(r"\.\.\.", ".*") + r"\n")
    return "".join(lines)


def squeezed(line: str) -> str:
    """Columns are as wide as what stands in them, so the amount of white space says nothing."""
    return re.sub(r"[ \t]+", " ", line).rstrip()


def provide_kedge(home: Path) -> Path:
    """Return a directory with the command: an ordinary user may be unable to run that of .venv."""
    directory = home / "commands"
    directory.mkdir()
    command = directory / "kedge"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kedge "$@"\n')
    command.chmod(0o755)
    return directory


def replay(page: Path, terminal: Terminal) -> None:
    """Run the commands of a page, and compare what they print with what it shows."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, terminal.home / folder)
    shutil.copy(ROOT / "pyproject.toml", terminal.home)
    commands = provide_kedge(terminal.home)
    here = os.path.dirname(sys.executable)
    terminal.environment["PATH"] = f"{commands}:{here}:{terminal.environment['PATH']}"
    shown = steps((ROOT / page).read_text())
    assert shown, "a page without a transcript"
    for step in shown:
        for command, package in NEEDED.items():
            if step.command.startswith(command) and importlib.util.find_spec(package) is None:
                pytest.skip(f"the package {package} is not installed")
        done = terminal.run("bash", "-c", f"{{ {step.command}\n}} 2>&1")
        said = "".join(f"{squeezed(line)}\n" for line in done.stdout.splitlines())
        if not re.fullmatch(pattern(step.output), said):
            pytest.fail(f"$ {step.command}\n{done.stdout}{terminal.account()}", pytrace=False)
