"""The docs describe every command, the reference is current, and quoted code exists."""

import re
import subprocess
import sys
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    assert "(docs/README.md)" in (ROOT / "README.md").read_text()
    index = (DOCS / "README.md").read_text()
    pages = {*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")} - {DOCS / "README.md"}
    for page in pages:
        assert f"({page.relative_to(DOCS)})" in index


def test_every_test_that_the_security_page_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", (DOCS / "security.md").read_text()))
    assert len(named) > 50
    for path, name in named:
        source = (DOCS.parent / path).read_text()
        assert not name or f"def {name}(" in source, f"{path}::{name}"


def test_every_promise_of_the_security_page_names_its_test() -> None:
    """Escapes that need a feature of other runtimes, or a bug of the kernel, have none."""
    page = (DOCS / "security.md").read_text()
    for chapter in ("Promises", "Escapes of other runtimes"):
        text = page.partition(f"\n## {chapter}\n")[2].partition("\n## ")[0]
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        promises = [row for row in rows if not row.startswith(("| promise", "| CVE"))]
        assert len(promises) > 20
        for row in promises:
            proof = row.rstrip("| ").rpartition(" | ")[2]
            is_named = "`tests/" in proof or "(#escapes-of-other-runtimes)" in proof
            assert is_named or proof in ("no such code", "no"), row


TABLES = yaml.safe_load((ROOT / "tests" / "e2e" / "pods" / "docs_tables.yaml").read_text())


def table_rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    _, _, rest = page.partition(f"# {heading}\n")
    lines = rest[rest.index("\n|") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table['page']} {table['heading']}")
def test_every_row_of_a_table_of_features_is_run(table: dict[str, Any]) -> None:
    rows = table_rows((DOCS / table["page"]).read_text(), table["heading"])
    by_kind = table["heading"] == "Subresources"
    names = [f"{row[0]} of {row[1]}" if by_kind else row[0] for row in rows]
    assert sorted(names) == sorted([*table["rows"], *table.get("tested", ())])
    for path, name in (test.split("::") for test in table.get("tested", {}).values()):
        assert f"def {name}(" in (ROOT / path).read_text()


def test_every_command_of_the_page_about_kubectl_is_run() -> None:
    (table,) = [each for each in TABLES if each["page"] == "kubectl.md"]
    for row, script in table["rows"].items():
        for command in re.findall("`([^`]+)`", row):
            assert (command if command.startswith("--") else f"kubectl {command}") in script


def test_every_file_of_the_project_that_the_docs_name_exists() -> None:
    pages = [ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]
    for page in pages:
        for path in re.findall(r"`([a-z_0-9]+/[\w/.-]+\.(?:py|json|proto))`", page.read_text()):
            places = (ROOT / path, ROOT / "src" / "kedge" / path)
            known = path.startswith("nodes/NAME/") or any(place.exists() for place in places)
            assert known, f"{page.name}: {path}"


GAPS = re.compile(r"\b(yet|today|nothing does|whoever|nobody|somebody|by and by)\b", re.IGNORECASE)
"""Words for missing features, which belong on one page, and words without a subject."""


def test_missing_features_are_described_on_one_page() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("examples/*/*.md")]
    allowed = ("CHANGELOG.md", "differences.md")
    for page in pages:
        text = re.sub("```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
        assert page.name in allowed or not GAPS.findall(text), page
