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
QUOTES: Final = '"' * 3
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


def has_suspects(text: str) -> bool:
    """Return whether a text may have findings."""
    text = " ".join(text.split())
    return bool(WORDS.search(text) or BEGINNINGS.search(text))


def comment_text(source: str) -> str:
    """Return the text of all comments, and perhaps more."""
    lines = (line.partition("#")[2] for line in source.splitlines() if "#" in line)
    return " ".join(line.lstrip("# ") for line in lines)


def string_text(source: str) -> str:
    """Return the text of all strings that are statements, and perhaps more."""
    if "'" + QUOTES in source or source.count(QUOTES) % 2:
        return source
    lines = (line for line in source.splitlines() if line.lstrip().startswith(('"', "'")))
    return " ".join([*source.split(QUOTES)[1::2], *lines])


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
        # To parse a file takes long, and most have nothing to find.
        said = docstrings(source) if has_suspects(string_text(source)) else ()
        written = comments(source) if has_suspects(comment_text(source)) else ()
        for prose in (*said, *written):
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


@pytest.mark.parametrize(
    "source",
    [
        "x = '#'  # Whoever asks.\n",
        "# The files of\n# which it is made.\n",
        "#    What a pod uses.\n",
        '"""Returns what a\n    pod uses. What else."""\n',
        'x = 1\n"What a pod uses."\n',
        'x = \'"""\'\n"""What a pod uses."""\n',
    ],
)
def test_files_that_need_a_look_are_found(source: str) -> None:
    assert has_suspects(comment_text(source)) or has_suspects(string_text(source))


def test_names_in_code_need_no_look() -> None:
    source = '"""One."""\n# A plain comment.\nwhoever = told\n'
    assert not has_suspects(comment_text(source))
    assert not has_suspects(string_text(source))


def test_docstrings_of_attributes_and_blocks_of_comments_are_read() -> None:
    source = '"""One."""\nX = 1\n"""Two\nlines."""\n# Three\n# lines.\nY = 2  # Four.\n\n# Five.\n'
    assert [*docstrings(source), *comments(source)] == [
        Prose(1, "One."),
        Prose(3, "Two lines."),
        Prose(5, "Three lines. Four."),
        Prose(9, "Five."),
    ]
