"""docs/seeds.md names tests that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "seeds.md").read_text()
DOCUMENTS = 5
DEFAULT_FILE = re.compile(r"Tests without a file are in `tests/([\w/]+\.py)`")
NAMED = re.compile(r"`(?:([\w/]+\.py)::)?(test_\w+)`")


def references() -> Iterator[tuple[str, str]]:
    """Yield file and function of each test that the page names."""
    for section in PAGE.split("\n## ")[1:]:
        default = DEFAULT_FILE.search(section)
        assert default is not None, section.partition("\n")[0]
        for file, function in NAMED.findall(section):
            yield file or default.group(1), function


def test_the_page_goes_through_every_document() -> None:
    numbers = re.findall(r"^## (\d{3}): ", PAGE, re.MULTILINE)
    assert numbers == [f"{number:03}" for number in range(DOCUMENTS)]


@pytest.mark.parametrize(("file", "function"), sorted(set(references())))
def test_a_test_that_the_page_names_exists(file: str, function: str) -> None:
    text = (TESTS / file).read_text()
    assert re.search(rf"^(async )?def {function}\(", text, re.MULTILINE), f"{file}::{function}"
