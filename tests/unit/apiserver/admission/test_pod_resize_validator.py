from typing import Any

import pytest

from kedge.api.core_v1 import node
from kedge.api.core_v1.pod import pod
from kedge.apiserver.admission.pod_resize_validator import PodResizeValidator
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt, cache_with
from kedge.testing.pods import new_pod


async def resized(requests: dict[str, str], *, on: str = "n", system: str = "linux") -> str:
    """Why a resize is refused; empty if it is not."""
    document: dict[str, Any] = {
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": system}},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}},
    }
    cache = await cache_with([node.RESOURCE], [(node.RESOURCE, document)])
    plugin = PodResizeValidator(cache.of(node.RESOURCE))
    old = new_pod(spec={"nodeName": on})
    wanted = new_pod(spec={"nodeName": on}, container={"resources": {"requests": requests}})
    try:
        await plugin.validate(attempt(pod.RESOURCE, "UPDATE", wanted, old, subresource="resize"))
    except StatusError as error:
        return f"{error.code} {error.message}"
    return ""


REFUSED = '403 pods "pod" is forbidden: '


@pytest.mark.parametrize(
    ("requests", "why"),
    [
        ({"cpu": "2", "memory": "1Gi"}, ""),
        ({"cpu": "2500m"}, "cpu, requested: 2500, allocatable: 2000"),
        (
            {"cpu": "3", "memory": "2Gi"},
            "cpu, requested: 3000, allocatable: 2000;"
            " memory, requested: 2147483648, allocatable: 1073741824",
        ),
    ],
)
async def test_a_pod_grows_up_to_what_its_node_has(requests: dict[str, str], why: str) -> None:
    text = f"{REFUSED}node didn't have enough allocatable resources: {why}" if why else ""
    assert await resized(requests) == text


async def test_a_pod_without_a_node_is_not_checked() -> None:
    assert await resized({"cpu": "9"}, on="") == ""


async def test_the_node_must_be_there_and_run_linux() -> None:
    assert await resized({}, on="gone") == ""
    assert await resized({"cpu": "1"}, on="gone") == f'{REFUSED}node "gone" not found'
    assert await resized({"cpu": "1"}, system="windows") == (
        f'{REFUSED}pod resize is only supported on linux nodes, node "n" is "windows"'
    )
