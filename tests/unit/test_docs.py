"""The docs name every flag, variable, plugin and metric, and quote only code that is there."""

import re
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path

import pytest

from kedge.apiserver.config import ADMISSION_PLUGINS
from kedge.apiserver.server import assemble, telemetry
from kedge.cli.main import parser
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock

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
def test_every_flag_of_a_command_is_in_its_section(name: str) -> None:
    text = section((DOCS / "commands.md").read_text(), f"kedge {name}")
    words = set(re.findall(r"[\w$-]+", text))
    for action in commands()[name]._actions:
        if action.dest != "help":
            assert {*action.option_strings} <= words, f"kedge {name} {action.option_strings}"
            assert {*re.findall(r"\$(KEDGE_\w+)", action.help or "")} <= words


def test_every_admission_plugin_is_explained() -> None:
    text = section((DOCS / "api.md").read_text(), "Admission")
    assert {*ADMISSION_PLUGINS} <= set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))


async def test_every_metric_is_explained_with_its_type() -> None:
    store = MemoryStore(FakeClock())
    served = telemetry(await assemble(store, FakeClock())).text()
    await store.close()
    text = section((DOCS / "api.md").read_text(), "Discovery, health and metrics")
    explained = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", text, re.MULTILINE))
    assert explained == set(re.findall(r"^# TYPE (\w+) (\w+)$", served, re.MULTILINE))


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
