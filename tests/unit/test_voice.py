"""Comments and docstrings avoid the words that most often make a sentence hard to read."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import kedge

SOURCES: Final = Path(kedge.__file__).parent
CHECKOUT: Final = Path(__file__).parents[2]
FOLDERS: Final = (SOURCES, CHECKOUT / "bench", CHECKOUT / "tools", CHECKOUT / "examples")

WORDS: Final = re.compile(
    r"\b(whoever|whomever|nobody|somebody|by and by|of which|of whom|told|(?:is|are) not one"
    r"|(?:it is|they are) (?-i:none))\b",
    re.IGNORECASE,
)
BEGINNINGS: Final = re.compile(r"\b(?:What|Who|Whom|Whose|Whoever)\b")
HEADLESS: Final = re.compile(r"(?:^|[.:] )(What|Who|Whom|Whose|Whoever)\b(?![^.]*\?)")
"""A sentence without a noun as its subject; questions are sentences of their own right."""

ALLOWED: Final = {"supervisor/sandbox/user_namespace.py": "`nobody`"}
"""By file: a phrase in which a word of the list is right. `nobody` is a name of Unix."""


class Prose(NamedTuple):
    """A docstring or a block of comments, on one line."""

    line: int
    text: str

    def findings(self, allowed: str = "") -> list[str]:
        """Return the words and beginnings that the text should not have."""
        text = self.text.replace(allowed, "") if allowed else self.text
        words = [each[0] for each in WORDS.finditer(text)]
        return words + [each[1] for each in HEADLESS.finditer(text)]


def docstrings(source: str) -> Iterator[Prose]:
    """Yield every string that is a statement: docstrings of modules, functions and attributes."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield Prose(node.lineno, " ".join(text.split()))


def has_suspects(source: str) -> bool:
    """Return whether a comment may have findings: to divide a file into tokens takes long."""
    lines = (line.partition("#")[2] for line in source.splitlines() if "#" in line)
    text = " ".join(line.lstrip("# ") for line in lines)
    return bool(WORDS.search(text) or BEGINNINGS.search(text))


def comments(source: str) -> Iterator[Prose]:
    """Yield every block of comments on consecutive lines."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [each for each in tokens if each.type == tokenize.COMMENT]
    numbered = enumerate(found)
    for _, block in groupby(numbered, lambda pair: pair[1].start[0] - pair[0]):
        lines = [token for _, token in block]
        yield Prose(lines[0].start[0], " ".join(each.string.lstrip("# ") for each in lines))


def findings() -> Iterator[str]:
    paths = [(folder, path) for folder in FOLDERS for path in sorted(folder.rglob("*.py"))]
    for folder, path in paths:
        source, name = path.read_text(), str(path.relative_to(folder))
        written = comments(source) if has_suspects(source) else ()
        for prose in (*docstrings(source), *written):
            for found in prose.findings(ALLOWED.get(name, "")):
                yield f"{name}:{prose.line}: {found!r} in {prose.text!r}"


def test_comments_and_docstrings_are_in_plain_english() -> None:
    assert list(findings()) == []


def test_the_list_of_exceptions_only_shrinks() -> None:
    unused = [
        name for name, phrase in ALLOWED.items() if phrase not in (SOURCES / name).read_text()
    ]
    assert unused == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("What a pod uses.", ["What"]),
        ("Deletes a pod. Who waits for it is woken.", ["Who"]),
        ("What does upstream do?", []),
        ("Returns what a pod uses.", []),
        ("Whoever asks is told.", ["Whoever", "told", "Whoever"]),
        ("The files of which it is made.", ["of which"]),
        ("Returns the path; ValueError if it is none.", ["it is none"]),
        ("Returns the path; empty if there is none.", []),
    ],
)
def test_findings(text: str, found: list[str]) -> None:
    assert Prose(1, text).findings() == found


def test_comments_that_need_a_look_are_found() -> None:
    assert has_suspects("x = '#'  # Whoever asks.\n")
    assert has_suspects("# The files of\n# which it is made.\n")
    assert has_suspects("#    What a pod uses.\n")
    assert not has_suspects("# A plain comment.\nwhoever = 1\n")


def test_docstrings_of_attributes_and_blocks_of_comments_are_read() -> None:
    source = '"""One."""\nX = 1\n"""Two\nlines."""\n# Three\n# lines.\nY = 2  # Four.\n\n# Five.\n'
    assert [*docstrings(source), *comments(source)] == [
        Prose(1, "One."),
        Prose(3, "Two lines."),
        Prose(5, "Three lines. Four."),
        Prose(9, "Five."),
    ]
