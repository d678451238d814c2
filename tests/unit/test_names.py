"""A class name has one definition in the tree.

The exceptions are types of the API. The list may only shrink.
"""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import kedge

SOURCES: Final = Path(kedge.__file__).parent

_API_TYPES = """
Container CrossVersionObjectReference Device EndpointPort Event EventSeries
HorizontalPodAutoscaler HorizontalPodAutoscalerSpec HorizontalPodAutoscalerStatus Node NodeMetrics
PersistentVolumeClaim Pod PodMetrics ResourceClaim
"""
API_TYPES: Final = frozenset(_API_TYPES.split())
"""Types of the API that several groups or versions define; OpenAPI publishes them by class name."""


CLASS: Final = re.compile(r"^class (\w+)", re.MULTILINE)


def definitions(sources: Iterable[str]) -> Iterator[str]:
    """Yield the name of every top-level class."""
    for source in sources:
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.ClassDef):
                yield statement.name


@functools.cache
def duplicates() -> set[str]:
    # To parse every file takes seconds: only those with a name that another one seems to have.
    sources = [path.read_text() for path in SOURCES.rglob("*.py")]
    found = Counter(name for source in sources for name in CLASS.findall(source))
    suspects = {name for name, count in found.items() if count > 1}
    parsed = [each for each in sources if not suspects.isdisjoint(CLASS.findall(each))]
    return {name for name, count in Counter(definitions(parsed)).items() if count > 1}


def test_a_class_name_has_one_definition() -> None:
    assert sorted(duplicates() - API_TYPES) == []


def test_the_list_of_exceptions_only_shrinks() -> None:
    assert sorted(API_TYPES - duplicates()) == []
