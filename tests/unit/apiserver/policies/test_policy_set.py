"""Policies with their bindings, compiled when they change."""

import asyncio
from typing import Any

import msgspec
import pytest

from kedge.apiserver.policies.policy_set import PolicySet
from kedge.apiserver.policies.validation import ValidatingParts, validating_parts
from kedge.apiserver.watchcache import Item
from kedge.testing.clock import FakeClock


class FakeCache(dict[str, Item]):
    """The part of a ResourceCache that a PolicySet uses."""

    def __init__(self) -> None:
        self.listeners: set[Any] = set()

    def put(self, name: str, **spec: Any) -> None:
        document = {"metadata": {"name": name}, "spec": spec}
        self[name] = Item(f"/x/{name}", len(self) + 1, msgspec.json.encode(document))
        for listener in self.listeners:
            listener(None)


@pytest.fixture
def caches() -> tuple[FakeCache, FakeCache]:
    return FakeCache(), FakeCache()


def policy_set(caches: tuple[FakeCache, FakeCache]) -> PolicySet[ValidatingParts]:
    return PolicySet(*caches, validating_parts)  # type: ignore[arg-type]


async def test_bound_policies_are_read_again_when_one_changes(
    caches: tuple[FakeCache, FakeCache],
) -> None:
    made, clock = policy_set(caches), FakeClock()
    assert await made.bound(clock) == ()
    caches[0].put("a", validations=[{"expression": "true"}])
    caches[0].put("unbound", validations=[{"expression": "true"}])
    caches[1].put("one", policyName="a")
    first = await made.bound(clock)
    assert [(each.name, len(each.bindings)) for each in first] == [("a", 1)]
    assert await made.bound(clock) is first
    caches[1].put("two", policyName="a")
    second = await made.bound(clock)
    assert [(each.name, len(each.bindings)) for each in second] == [("a", 2)]
    assert second[0].parts is first[0].parts, "an unchanged policy is not compiled again"


async def test_a_long_policy_is_compiled_in_a_thread(
    caches: tuple[FakeCache, FakeCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[Any] = []

    async def in_thread(work: Any, *arguments: Any) -> Any:
        threads.append(work)
        return work(*arguments)

    monkeypatch.setattr("asyncio.to_thread", in_thread)
    made, clock = policy_set(caches), FakeClock()
    caches[0].put("a", validations=[{"expression": f"'{'x' * 5_000}' != ''"}])
    caches[0].put("b", validations=[{"expression": "true"}])
    for name in ("a", "b"):
        caches[1].put(name, policyName=name)
    assert [each.name for each in await made.bound(clock)] == ["a", "b"]
    assert len(threads) == 1


async def test_a_change_while_policies_are_read_is_seen_by_later_requests(
    caches: tuple[FakeCache, FakeCache],
) -> None:
    made, clock = policy_set(caches), FakeClock()
    caches[0].put("a", validations=[{"expression": "true"}])
    caches[1].put("a", policyName="a")

    class ChangingClock(FakeClock):
        async def give_way(self) -> None:
            if "b" not in caches[1]:
                caches[0].put("b", validations=[{"expression": "true"}])
                caches[1].put("b", policyName="b")

    await asyncio.gather(made.bound(ChangingClock()), made.bound(clock))
    assert [each.name for each in await made.bound(clock)] == ["a", "b"]


def unreadable(cache: FakeCache, name: str, body: bytes) -> None:
    cache[name] = Item(f"/x/{name}", len(cache) + 1, body)


async def test_an_unreadable_policy_is_at_fault_and_leaves_the_others(
    caches: tuple[FakeCache, FakeCache],
) -> None:
    wrong = [{"key": "a", "operator": "Near"}]
    caches[0].put("a", validations=[{"expression": "true"}])
    caches[0].put("b", matchConstraints={"namespaceSelector": {"matchExpressions": wrong}})
    caches[0].put("c", auditAnnotations=[{}], failurePolicy="Ignore")
    caches[0].put("d", variables=7)
    for name in "abcd":
        caches[1].put(name, policyName=name)
    found = {each.name: each for each in await policy_set(caches).bound(FakeClock())}
    assert not found["a"].fault
    assert found["b"].fault == (
        'stored object is not readable: ValueError: "Near" is not a valid label selector operator'
    )
    assert found["c"].fault == "stored object is not readable: KeyError: 'key'"
    assert found["c"].ignores_failure
    assert "TypeError" in found["d"].fault


async def test_a_binding_is_at_fault(caches: tuple[FakeCache, FakeCache]) -> None:
    wrong = [{"key": "a", "operator": "Near"}]
    caches[0].put("a", validations=[{"expression": "true"}])
    caches[1].put("good", policyName="a")
    caches[1].put(
        "bad", policyName="a", matchResources={"objectSelector": {"matchExpressions": wrong}}
    )
    (policy,) = await policy_set(caches).bound(FakeClock())
    assert [(each.name, bool(each.fault)) for each in policy.bindings] == [
        ("bad", True),
        ("good", False),
    ]


async def test_what_is_not_a_document_is_skipped(caches: tuple[FakeCache, FakeCache]) -> None:
    unreadable(caches[0], "a", b"{")
    unreadable(caches[0], "b", b'{"metadata":{"name":"b"}}')
    unreadable(caches[1], "c", b'{"spec":[]}')
    caches[0].put("d", validations=[{"expression": "true"}])
    for name in "abd":
        caches[1].put(name, policyName=name)
    assert [each.name for each in await policy_set(caches).bound(FakeClock())] == ["d"]
