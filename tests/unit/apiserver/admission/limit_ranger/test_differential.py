"""Thousands of pods under thousands of LimitRanges, each judged twice."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.apiserver.admission.limit_ranger import documents, generated
from tests.unit.apiserver.admission.limit_ranger.reference import (
    ANNOTATION,
    Outcome,
    claim_violations,
    item,
    outcome,
    sentence,
)

from kedge.testing.local_server import LocalAnswer, LocalServer

CORE = "/api/v1/namespaces/default"
THOROUGH = settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PODS_EACH = 5
"""Pods under the same LimitRanges, since it is these that take time to replace."""


class Judged:
    """One server for all cases, in which LimitRanges replace each other."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._there: set[str] = set()

    async def limit(self, ranges: dict[str, list[Any]]) -> None:
        """Let these be all LimitRanges there are, made in this order."""
        for name in self._there:
            await self._server.delete(f"{CORE}/limitranges/{name}")
        for name, items in ranges.items():
            made = documents.limit_range(name, items)
            await self._server.post(f"{CORE}/limitranges", made)
        self._there = set(ranges)

    async def create(self, plural: str, document: documents.Document) -> LocalAnswer:
        return await self._server.call("POST", f"{CORE}/{plural}?dryRun=All", document)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def judged(loop: asyncio.Runner) -> Iterator[Judged]:
    stack = AsyncExitStack()

    async def start() -> Judged:
        running = LocalServer.running(admission=("NamespaceLifecycle", "LimitRanger"))
        return Judged(await stack.enter_async_context(running))

    yield loop.run(start())
    loop.run(stack.aclose())


def observed(answer: LocalAnswer) -> Outcome:
    """What became of a pod, in the words of the reference."""
    document = answer.document
    if answer.status == 422:
        causes = {(cause["field"], cause["message"]) for cause in document["details"]["causes"]}
        return Outcome(422, faults=causes)
    if answer.status == 403:
        return Outcome(403, messages=[answer.message.partition(" is forbidden: ")[2]])
    none: dict[str, str] = {}
    resources = {
        name: {"requests": none, "limits": none} | given
        for name, given in documents.resources(document).items()
    }
    annotations = document["metadata"].get("annotations", {})
    return Outcome(answer.status, resources, annotations.get(ANNOTATION, ""))


def expected(pod: documents.Document, ranges: dict[str, list[Any]]) -> Outcome:
    found = outcome(pod, ranges)
    if found.messages:
        found.messages = [sentence(found.messages)]
    return found


@THOROUGH
@given(
    generated.limit_ranges(),
    st.lists(generated.pods(), min_size=PODS_EACH, max_size=PODS_EACH),
)
def test_pods_fare_as_the_rules_say(
    loop: asyncio.Runner,
    judged: Judged,
    ranges: dict[str, list[Any]],
    pods: list[documents.Document],
) -> None:
    async def compare() -> None:
        await judged.limit(ranges)
        for pod in pods:
            answer = await judged.create("pods", pod)
            assert observed(answer) == expected(pod, ranges), (ranges, pod["spec"])

    loop.run(compare())


@settings(THOROUGH, max_examples=120)
@given(
    generated.selective_limit_ranges(),
    st.lists(generated.labelled_pods(), min_size=PODS_EACH, max_size=PODS_EACH),
)
def test_selectors_leave_out_whom_they_do_not_select(
    loop: asyncio.Runner,
    judged: Judged,
    ranges: dict[str, list[Any]],
    pods: list[documents.Document],
) -> None:
    async def compare() -> None:
        await judged.limit(ranges)
        for pod in pods:
            answer = await judged.create("pods", pod)
            assert observed(answer) == expected(pod, ranges), (ranges, pod)

    loop.run(compare())


STORAGE = st.sampled_from(["0", "1Mi", "1.5Mi", "1Gi", "1.1Gi", "1e9", "1G", "9Ei", "12E", "20E"])
BOUNDS = st.tuples(STORAGE, STORAGE, st.sampled_from(["min", "max", "both"]))


def claim_item(first: str, second: str, which: str) -> documents.Document:
    least, greatest = generated.in_order([first, second])
    bounds = {"min": {"storage": least}, "max": {"storage": greatest}}
    kept = bounds if which == "both" else {which: bounds[which]}
    return {"type": "PersistentVolumeClaim", **kept}


@settings(THOROUGH, max_examples=100)
@given(st.lists(BOUNDS, min_size=1, max_size=3), st.lists(STORAGE, min_size=1, max_size=5))
def test_claims_fare_as_the_rules_say(
    loop: asyncio.Runner,
    judged: Judged,
    bounds: list[tuple[str, str, str]],
    asked: list[str],
) -> None:
    ranges = {f"x{i}": [claim_item(*each)] for i, each in enumerate(bounds)}
    stored = [[item(each) for each in ranges[name]] for name in sorted(ranges)]

    async def compare() -> None:
        await judged.limit(ranges)
        for storage in asked:
            requests = {"storage": storage}
            answer = await judged.create(
                "persistentvolumeclaims", documents.claim({"requests": requests})
            )
            said = claim_violations(requests, stored)
            if storage == "0":
                assert answer.status == 422
            elif said:
                forbidden = 'persistentvolumeclaims "v" is forbidden: '
                assert answer.message == forbidden + sentence(said), ranges
            else:
                assert answer.status == 201, (answer.message, ranges)

    loop.run(compare())
