"""A class name has one definition in the tree.

The exceptions are types of the API. The list may only shrink.
"""

import ast
import functools
from collections import Counter
from collections.abc import Iterator
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


def definitions() -> Iterator[str]:
    """Yield the name of every top-level class under `SOURCES`."""
    for path in sorted(SOURCES.rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.ClassDef):
                yield statement.name


@functools.cache
def duplicates() -> set[str]:
    return {name for name, count in Counter(definitions()).items() if count > 1}


def test_a_class_name_has_one_definition() -> None:
    assert sorted(duplicates() - API_TYPES) == []


def test_the_list_of_exceptions_only_shrinks() -> None:
    assert sorted(API_TYPES - duplicates()) == []
