import pytest

from kedge.testing.node import LocalNode

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


async def make(node: LocalNode, name: str, handler: str) -> None:
    await node.server.post(CLASSES, {"metadata": {"name": name}, "handler": handler})


async def test_a_pod_of_another_runtime_waits_and_says_for_what(node: LocalNode) -> None:
    await make(node, "safe", "kata")
    await node.create(spec={"runtimeClassName": "safe"})
    assert (await node.status())["phase"] == "Pending"
    why = 'Failed to create pod sandbox: no runtime for "kata" is configured'
    assert ("Warning", "FailedCreatePodSandBox", why) in node.events.told
    assert node.runtime.calls == []


@pytest.mark.parametrize("name", ["mine", None])
async def test_a_pod_of_this_runtime_runs(node: LocalNode, name: str | None) -> None:
    await make(node, "mine", "kedge")
    await node.create(spec={"runtimeClassName": name} if name else {})
    assert (await node.status())["phase"] == "Running"


async def test_a_class_that_is_gone_is_told(node: LocalNode) -> None:
    await node.create(spec={"runtimeClassName": "gone"})
    [(_, reason, why)] = [each for each in node.events.told if each[0] == "Warning"]
    assert reason == "FailedCreatePodSandBox"
    assert 'RuntimeClass "gone"' in why
