from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.scheduling_v1 import priority_class
from kedge.apiserver.admission.priority import Priority
from kedge.machinery.errors import StatusError
from kedge.testing.admission import admit_only_with, attempt, cache_with
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import new_pod

HIGH = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
DEFAULT = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def plugin(*classes: dict[str, Any]) -> Priority:
    resource = priority_class.RESOURCE
    cache = await cache_with([resource], [(resource, document) for document in classes])
    return Priority(cache.of(resource))


async def resolved(given: Pod, *classes: dict[str, Any]) -> tuple[str, int | None, str | None]:
    changed = await (await plugin(*classes)).mutate(attempt(pod.RESOURCE, "CREATE", given))
    assert isinstance(changed, Pod)
    return changed.spec.priorityClassName, changed.spec.priority, changed.spec.preemptionPolicy


async def test_a_pod_gets_the_priority_of_its_class() -> None:
    given = new_pod(spec={"priorityClassName": "high"})
    assert await resolved(given, HIGH) == ("high", 1000, "Never")


async def test_a_pod_without_a_class_gets_the_default_one() -> None:
    assert await resolved(new_pod(), HIGH) == ("", 0, "PreemptLowerPriority")
    assert await resolved(new_pod(), HIGH, DEFAULT) == ("usual", 7, None)


async def test_of_two_defaults_the_lesser_holds() -> None:
    lesser = DEFAULT | {"metadata": {"name": "lesser"}, "value": 3}
    assert (await resolved(new_pod(), DEFAULT, lesser))[0] == "lesser"


async def test_a_right_guess_passes() -> None:
    given = new_pod(
        spec={"priority": 1000, "preemptionPolicy": "Never", "priorityClassName": "high"}
    )
    assert await resolved(given, HIGH) == ("high", 1000, "Never")


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"priorityClassName": "none"}, "no PriorityClass with name none was found"),
        (
            {"priority": 5},
            "the integer value of priority (5) must not be provided in pod spec; priority "
            "admission controller computed 0 from the given PriorityClass name",
        ),
        (
            {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in "
            "pod spec; priority admission controller computed Never from the given PriorityClass "
            "name",
        ),
    ],
)
async def test_a_pod_cannot_set_its_own_priority(spec: dict[str, Any], why: str) -> None:
    with pytest.raises(StatusError) as refusal:
        await resolved(new_pod(spec=spec), HIGH)
    assert refusal.value.code == 403
    assert refusal.value.message == f'pods "pod" is forbidden: {why}'


async def test_an_update_that_leaves_the_priority_out_keeps_it() -> None:
    old = new_pod(spec={"priority": 9, "preemptionPolicy": "Never"})
    new = replace(old, spec=replace(old.spec, priority=None, preemptionPolicy=None))
    priorities = await plugin()
    assert await priorities.mutate(attempt(pod.RESOURCE, "UPDATE", new, old)) == old
    assert await priorities.mutate(attempt(pod.RESOURCE, "UPDATE", old, old)) is old


async def test_only_one_class_can_be_the_default(server: LocalServer) -> None:
    admit_only_with(server, Priority(server.app.api.cache.of(priority_class.RESOURCE)))
    await server.post(CLASSES, DEFAULT)
    second = DEFAULT | {"metadata": {"name": "second"}}
    refused = await server.call("POST", CLASSES, second)
    assert refused.status == 403
    assert refused.message == (
        'priorityclasses.scheduling.k8s.io "second" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )
    await server.post(CLASSES, second | {"globalDefault": False})
    patched = await server.call(
        "PATCH",
        f"{CLASSES}/second",
        {"globalDefault": True},
        content_type="application/merge-patch+json",
    )
    assert patched.status == 403
    await server.merge(f"{CLASSES}/usual", {"description": "still the default"})
    await server.delete(f"{CLASSES}/usual")
    await server.merge(f"{CLASSES}/second", {"globalDefault": True})
