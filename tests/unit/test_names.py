"""A class name has one definition in the tree.

The exceptions are listed here. Both lists may only shrink: a name that is defined once must leave
its list, and no name may join `SHARED_TODAY`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import kedge

SOURCES: Final = Path(kedge.__file__).parent

_API_TYPES = """
Container CrossVersionObjectReference EndpointPort Event EventSeries HorizontalPodAutoscaler
HorizontalPodAutoscalerSpec HorizontalPodAutoscalerStatus Node NodeMetrics Pod PodMetrics
"""
API_TYPES: Final = frozenset(_API_TYPES.split())
"""Types of the API that several groups or versions define; OpenAPI publishes them by class name."""

_SHARED_TODAY = """
Access Address Answer Asked Backoff Call Caller Change Channel Client Columns Command Connection
DeleteOptions Device Door Ending Endpoint Endpoints Entry Explained Failure Files Follower Found
Given Holding Image Images Key Kind Known Latest Layout Limits Lines Log Look Loop Machine Malformed
Manifest Measured MeasuredPod Mount Named NodePods NodeStatus Owner Page Parser Part Places Plan
Plugin PodSpec Preconditions PullSecrets Reader Reading Record Reference Refusal Refused Request
Rule Running Sandbox Scale Server Sink Snapshot Source Sources Start State Store Stream Surroundings
Target Token Unusable User Violation Wanted _Class _Entry _Field _Found _Grant _Memory _Version
"""
SHARED_TODAY: Final = frozenset(_SHARED_TODAY.split())
"""Names that still have several definitions."""

MOST: Final = 104
"""How many names may have several definitions, API types included."""


def definitions() -> Iterator[str]:
    """Yield the name of every top-level class under `SOURCES`."""
    for path in sorted(SOURCES.rglob("*.py")):
        for statement in ast.parse(path.read_text()).body:
            if isinstance(statement, ast.ClassDef):
                yield statement.name


def duplicates() -> set[str]:
    return {name for name, count in Counter(definitions()).items() if count > 1}


def test_a_class_name_has_one_definition() -> None:
    assert sorted(duplicates() - API_TYPES - SHARED_TODAY) == []


def test_the_lists_of_exceptions_only_shrink() -> None:
    assert sorted((API_TYPES | SHARED_TODAY) - duplicates()) == []
    assert len(API_TYPES | SHARED_TODAY) <= MOST
