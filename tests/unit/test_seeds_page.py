"""docs/seeds: every row has tests, they exist, and every test of a design document has a row.

The documents are not part of the project, so a row is compared with the other pages and the tests.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

TESTS: Final = Path(__file__).resolve().parents[1]
DOCS: Final = TESTS.parent / "docs"
PAGES: Final = sorted((DOCS / "seeds").glob("[0-9]*.md"))
DOCUMENTS: Final = 5
DEFAULT_FILE: Final = re.compile(r"Tests without a file are in `tests/([\w/]+\.py)`")
NAMED: Final = re.compile(r"`(?:([\w/]+\.py)::)?(test_\w+)`")
CODE: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"\]\(([^)#]+)(?:#([^)]+))?\)")


class SeedRow(NamedTuple):
    """A row of the page."""

    document: str
    says: str
    kedge: str
    tests: tuple[tuple[str, str], ...]
    """File and function."""


def rows() -> Iterator[SeedRow]:
    for page in PAGES:
        _, _, section = page.read_text().partition("\n## Sentence by sentence\n")
        default = DEFAULT_FILE.search(section)
        assert default is not None, page.name
        for line in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[1:]:
            says, kedge, tests = line.split(" | ")
            named = [(file or default[1], function) for file, function in NAMED.findall(tests)]
            yield SeedRow(page.name[:3], says, kedge, tuple(named))


ROWS: Final = tuple(rows())
NAMES: Final = [f"{row.document}: {row.says}" for row in ROWS]


def functions(file: Path) -> set[str]:
    """Return the names of the tests of a file."""
    found = ast.parse(file.read_text()).body
    defined = (each for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {each.name for each in defined if each.name.startswith("test_")}


def other_pages() -> str:
    pages = (each for each in DOCS.rglob("*") if each.suffix in (".md", ".proto"))
    return "\n".join(each.read_text() for each in pages if each not in PAGES)


def text_of_tests(row: SeedRow) -> str:
    return "\n".join((TESTS / file).read_text() for file in {file for file, _ in row.tests})


def test_every_document_has_a_page_with_its_examples() -> None:
    assert [page.name[:3] for page in PAGES] == [f"{number:03}" for number in range(DOCUMENTS)]
    for page in PAGES:
        text = page.read_text()
        assert text.startswith(f"# {page.name[:3]}: ")
        assert "```console\n$ " in text.partition("\n## The example")[2]
        assert f"]({page.name})" in (DOCS / "seeds" / "README.md").read_text()


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_a_row_says_what_kedge_does_and_which_tests_show_it(row: SeedRow) -> None:
    assert row.says
    assert row.kedge
    assert row.tests


def test_no_sentence_has_two_rows() -> None:
    assert sorted(NAMES) == sorted(set(NAMES))


@pytest.mark.parametrize("file", sorted({file for row in ROWS for file, _ in row.tests}))
def test_the_tests_that_the_page_names_exist(file: str) -> None:
    named = {function for row in ROWS for each, function in row.tests if each == file}
    assert named <= functions(TESTS / file)


@pytest.mark.parametrize("file", sorted((TESTS / "seeds").glob("test_*.py")), ids=lambda f: f.name)
def test_every_test_of_a_document_has_a_row(file: Path) -> None:
    document = file.name.split("_")[1]
    name = str(file.relative_to(TESTS))
    named = {
        function
        for row in ROWS
        if row.document == document
        for each, function in row.tests
        if each == name
    }
    assert functions(file) == named


def test_code_that_a_row_quotes_is_documented_or_tested() -> None:
    """The documents name some fields as Go does, with a capital."""
    pages = other_pages().lower()
    unknown = [
        (row.document, code)
        for row in ROWS
        for code in CODE.findall(row.says)
        if code.lower() not in pages and code.lower() not in text_of_tests(row).lower()
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_the_page_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = page.parent / path
        assert target.exists(), path
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert not anchor or anchor in [each.lower().replace(" ", "-") for each in headings], path
