from collections.abc import Sequence
from typing import Any

import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.node_types import DECLARED_FEATURES
from kedge.api.core_v1.pod import pod
from kedge.apiserver.admission.node_declared_feature_validator import NodeDeclaredFeatureValidator
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt, cache_with
from kedge.testing.pods import new_pod

REFUSED = '403 pods "pod" is forbidden: '
POD_LEVEL = "InPlacePodLevelResourcesVerticalScaling"
INIT = "InPlacePodVerticalScalingInitContainers"
CPU = {"requests": {"cpu": "1"}}


def init_container(**changes: Any) -> list[dict[str, Any]]:
    return [{"name": "init", "image": "i", **changes}]


async def updated(
    old: dict[str, Any],
    new: dict[str, Any],
    *,
    declared: Sequence[str] = (),
    on: str = "n",
    subresource: str = "resize",
) -> str:
    """Why an update is refused; empty if it is not."""
    document = {"metadata": {"name": "n"}, "status": {"declaredFeatures": declared}}
    cache = await cache_with([node.RESOURCE], [(node.RESOURCE, document)])
    plugin = NodeDeclaredFeatureValidator(cache.of(node.RESOURCE))
    before, after = (new_pod(spec={"nodeName": on, **spec}) for spec in (old, new))
    try:
        await plugin.validate(
            attempt(pod.RESOURCE, "UPDATE", after, before, subresource=subresource)
        )
    except StatusError as error:
        return f"{error.code} {error.message}"
    return ""


def lacking(features: str) -> str:
    return f'{REFUSED}pod update requires features {features} which are not available on node "n"'


async def test_a_pod_as_a_whole_is_resized_if_its_node_declares_that() -> None:
    assert await updated({}, {"resources": CPU}) == lacking(POD_LEVEL)
    assert await updated({}, {"resources": CPU}, subresource="") == lacking(POD_LEVEL)
    assert await updated({}, {"resources": CPU}, declared=[POD_LEVEL]) == ""
    assert await updated({}, {"resources": CPU}, declared=DECLARED_FEATURES) == ""


async def test_an_init_container_is_resized_if_its_node_declares_that() -> None:
    old = {"initContainers": init_container()}
    new = {"initContainers": init_container(resources=CPU)}
    assert await updated(old, new) == lacking(INIT)
    assert await updated(old, {**new, "resources": CPU}) == lacking(f"{POD_LEVEL}, {INIT}")
    assert await updated(old, new, declared=[INIT]) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"resources": CPU}, {"resources": {"requests": {"cpu": "1000m"}}}),
        ({"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 5}),
        (
            {"initContainers": init_container(restartPolicy="Always")},
            {"initContainers": init_container(restartPolicy="Always", resources=CPU)},
        ),
    ],
)
async def test_other_changes_need_no_feature(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert await updated(old, new) == ""


async def test_the_node_must_exist_if_there_is_one() -> None:
    assert await updated({}, {"resources": CPU}, on="") == ""
    assert await updated({}, {"resources": CPU}, on="gone") == f'{REFUSED}node "gone" not found'
    assert await updated({}, {"resources": CPU}, subresource="status") == ""
