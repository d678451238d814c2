from typing import Any

import pytest

from kedge.api.core_v1.pod import pod
from kedge.apiserver.admission.default_toleration_seconds import DefaultTolerationSeconds
from kedge.testing.admission import attempt
from kedge.testing.pods import new_pod

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


async def added(*tolerations: dict[str, Any], subresource: str = "") -> list[tuple[str, int]]:
    """(key, seconds) of the tolerations that a pod with these is given."""
    before = new_pod(spec={"tolerations": list(tolerations)})
    tried = attempt(pod.RESOURCE, "CREATE", before, subresource=subresource)
    after = await DefaultTolerationSeconds().mutate(tried)
    assert isinstance(after, pod.Pod)
    assert list(after.spec.tolerations[: len(tolerations)]) == list(before.spec.tolerations)
    return [(t.key, t.tolerationSeconds or 0) for t in after.spec.tolerations[len(tolerations) :]]


async def test_a_pod_that_says_nothing_stays_for_five_minutes() -> None:
    assert await added() == [(NOT_READY, 300), (UNREACHABLE, 300)]


@pytest.mark.parametrize(
    ("toleration", "keys"),
    [
        ({"operator": "Exists"}, []),
        ({"operator": "Exists", "effect": "NoExecute"}, []),
        ({"operator": "Exists", "effect": "NoSchedule"}, [NOT_READY, UNREACHABLE]),
        ({"key": NOT_READY, "operator": "Exists"}, [UNREACHABLE]),
        ({"key": NOT_READY, "effect": "NoExecute", "tolerationSeconds": 5}, [UNREACHABLE]),
        ({"key": UNREACHABLE, "effect": "NoSchedule"}, [NOT_READY, UNREACHABLE]),
        ({"key": "other", "operator": "Exists"}, [NOT_READY, UNREACHABLE]),
    ],
)
async def test_what_a_pod_says_itself_holds(toleration: dict[str, Any], keys: list[str]) -> None:
    assert [key for key, _ in await added(toleration)] == keys


async def test_subresources_are_left_alone() -> None:
    assert await added(subresource="status") == []
