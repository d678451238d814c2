"""The docs describe every command, the reference is current, and quoted code exists."""

import re
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path

import pytest

from kedge.cli.main import parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def commands() -> dict[str, ArgumentParser]:
    (found,) = [each for each in parser()._actions if isinstance(each, _SubParsersAction)]
    return dict(found.choices)


def section(page: str, heading: str) -> str:
    """The text between a heading and the next one of its level."""
    _, _, rest = page.partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


@pytest.mark.parametrize("name", commands())
def test_every_command_has_a_section_that_leads_to_its_flags(name: str) -> None:
    text = section((DOCS / "commands.md").read_text(), f"kedge {name}")
    assert f"(reference/commands.md#kedge-{name})" in text


def test_the_reference_is_what_the_code_says() -> None:
    check = [sys.executable, str(ROOT / "tools" / "reference"), "--check"]
    found = subprocess.run(check, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("name", commands())
def test_every_flag_and_variable_is_in_the_reference(name: str) -> None:
    text = section((DOCS / "reference" / "commands.md").read_text(), f"kedge {name}")
    words = set(re.findall(r"[\w$-]+", text))
    for action in commands()[name]._actions:
        if action.dest != "help":
            assert {*action.option_strings} <= words, f"kedge {name} {action.option_strings}"
            assert {*re.findall(r"\$(KEDGE_\w+)", action.help or "")} <= words


def test_quoted_code_stands_in_the_file_it_is_quoted_from() -> None:
    page = (DOCS / "adding-a-kind.md").read_text()
    quotes = re.findall(r"^```python\n# (\S+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert quotes
    for path, quote in quotes:
        source = (ROOT / path).read_text()
        for part in quote.split("\n...\n"):
            assert part in source, f"{path} no longer has:\n{part}"


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in DOCS.glob("*.md"):
        assert f"(docs/{page.name})" in readme


def test_every_test_that_the_security_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", (DOCS / "security.md").read_text()))
    assert len(named) > 50
    for path, name in named:
        source = (DOCS.parent / path).read_text()
        assert not name or f"def {name}(" in source, f"{path}::{name}"
