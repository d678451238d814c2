from typing import Any

import pytest

from kedge.api.builtin.resources import RESOURCES
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.affinity import Toleration
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver.admission.runtime_class import RuntimeClass, covers, widest
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt, cache_with
from kedge.testing.pods import new_pod

CLASS = next(each for each in RESOURCES if each.plural == "runtimeclasses")
OVERHEAD = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
PLACE = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "vm", "operator": "Exists", "effect": "NoSchedule"}],
}


async def plugin(**content: Any) -> RuntimeClass:
    document = {"metadata": {"name": "vm"}, "handler": "vm", **content}
    return RuntimeClass((await cache_with([CLASS], [(CLASS, document)])).of(CLASS))


async def admitted(plugin: RuntimeClass, **spec: Any) -> Pod:
    """The pod as the plugin lets it pass."""
    given = new_pod(spec=spec)
    changed = await plugin.mutate(attempt(pod.RESOURCE, "CREATE", given))
    assert isinstance(changed, Pod)
    await plugin.validate(attempt(pod.RESOURCE, "CREATE", changed))
    return changed


async def refusal(plugin: RuntimeClass, **spec: Any) -> str:
    with pytest.raises(StatusError) as refused:
        await admitted(plugin, **spec)
    assert refused.value.code == 403
    return refused.value.message.removeprefix('pods "pod" is forbidden: ')


async def test_a_pod_of_a_class_that_is_not_there_is_refused() -> None:
    why = await refusal(await plugin(), runtimeClassName="gone")
    assert why == 'pod rejected: RuntimeClass "gone" not found'


async def test_a_pod_takes_over_the_overhead_of_its_class() -> None:
    spec = (await admitted(await plugin(overhead=OVERHEAD), runtimeClassName="vm")).spec
    shown = {name: str(amount) for name, amount in spec.overhead.items()}
    assert shown == {"cpu": "250m", "memory": "64Mi"}


async def test_a_pod_of_a_class_without_overhead_stays_as_it_is() -> None:
    given = {"runtimeClassName": "vm"}
    assert (await admitted(await plugin(), **given)) == new_pod(spec=given)
    assert (await admitted(await plugin())) == new_pod()


@pytest.mark.parametrize(
    ("overhead", "why"),
    [
        ({"cpu": "0.25", "memory": "64Mi"}, ""),
        (
            {"cpu": "1"},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
    ],
)
async def test_a_pod_may_only_guess_the_overhead_right(overhead: Any, why: str) -> None:
    of_class = await plugin(overhead=OVERHEAD)
    spec = {"runtimeClassName": "vm", "overhead": overhead}
    if why:
        assert await refusal(of_class, **spec) == why
    else:
        await admitted(of_class, **spec)


async def test_overhead_without_a_class_that_has_it_is_refused() -> None:
    why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
    own = {"overhead": {"cpu": "1"}}
    assert await refusal(await plugin(), **own) == why
    assert await refusal(await plugin(), runtimeClassName="vm", **own) == why


async def test_a_pod_goes_where_its_class_can_run() -> None:
    spec = (
        await admitted(
            await plugin(scheduling=PLACE),
            runtimeClassName="vm",
            nodeSelector={"zone": "a", "disk": "ssd"},
            tolerations=[{"key": "vm", "operator": "Equal", "value": "1", "effect": "NoSchedule"}],
        )
    ).spec
    assert spec.nodeSelector == {"zone": "a", "disk": "ssd"}
    assert list(spec.tolerations) == [
        Toleration(key="vm", operator="Exists", effect="NoSchedule"),
    ]


async def test_a_pod_that_wants_to_be_elsewhere_than_its_class_is_refused() -> None:
    of_class = await plugin(scheduling=PLACE)
    why = await refusal(of_class, runtimeClassName="vm", nodeSelector={"disk": "hdd"})
    assert why == (
        "conflict: runtimeClass.scheduling.nodeSelector[disk] = ssd; "
        "pod.spec.nodeSelector[disk] = hdd"
    )


async def test_a_pod_that_is_there_is_left_alone_though_its_class_is_gone() -> None:
    old = new_pod(spec={"runtimeClassName": "gone"})
    update = attempt(pod.RESOURCE, "UPDATE", old, old)
    of_class = await plugin()
    assert await of_class.mutate(update) is old
    await of_class.validate(update)


EVERYTHING = Toleration(operator="Exists")
BRIEFLY = Toleration(key="k", operator="Exists", effect="NoExecute", tolerationSeconds=5)
LONGER = Toleration(key="k", operator="Exists", effect="NoExecute", tolerationSeconds=9)
FOR_EVER = Toleration(key="k", operator="Exists", effect="NoExecute")
VALUE = Toleration(key="k", operator="Equal", value="v")


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (EVERYTHING, VALUE),
        (FOR_EVER, LONGER),
        (LONGER, BRIEFLY),
        (Toleration(key="k", operator="Exists"), VALUE),
        (Toleration(key="k", value="v"), VALUE),
    ],
)
def test_a_wider_toleration_covers_a_narrower_and_not_the_reverse(
    wide: Toleration, narrow: Toleration
) -> None:
    assert covers(wide, narrow)
    assert not covers(narrow, wide)


def test_only_the_widest_tolerations_are_kept_and_equal_ones_once() -> None:
    other = Toleration(key="o", operator="Equal", value="v")
    assert widest([BRIEFLY, VALUE, LONGER, VALUE, other]) == [VALUE, LONGER, other]
    assert widest([VALUE, EVERYTHING, other]) == [EVERYTHING]
