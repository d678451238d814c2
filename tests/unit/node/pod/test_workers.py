import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.node_types import Taint
from kedge.node.runtime.runtime import ExecResult, SandboxConfig
from kedge.testing.local_server import LocalServer
from kedge.testing.node import PODS, LocalNode
from kedge.testing.runtime import ContainerRun

STRATEGIC = "application/strategic-merge-patch+json"


async def test_only_pods_that_are_bound_here_are_seen(node: LocalNode) -> None:
    await node.create("mine")
    await node.create("theirs", spec={"nodeName": "elsewhere"})

    assert [pod.metadata.name for pod in node.pods.pods()] == ["mine"]
    assert node.pods.find("default", "theirs") is None
    found = node.pods.find("default", "mine")
    assert found is not None
    assert found.status.phase == "Running"
    assert [c.name for c in node.pods.observed(found.metadata.uid).running] == ["ctr"]


async def test_a_slow_pod_does_not_hold_up_another(node: LocalNode) -> None:
    node.images.gates["slow"] = asyncio.Event()
    await node.create("slow", container={"image": "slow"})
    await node.create("quick")

    assert (await node.status("slow"))["phase"] == "Pending"
    assert (await node.status("quick"))["phase"] == "Running"


async def test_a_pod_that_asks_for_too_much_is_rejected(node: LocalNode) -> None:
    await node.create("first", container={"resources": {"requests": {"cpu": "8"}}})
    await node.create("second", container={"resources": {"requests": {"cpu": "3"}}})

    status = await node.status("second")
    text = "Node didn't have enough resource: cpu, requested: 3000, used: 8000, capacity: 10000"
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"] == f"Pod was rejected: {text}"
    assert ("Warning", "OutOfcpu", text) in node.events.told
    assert [c.name for c in node.runtime.of("ctr")] == ["ctr"]
    await node.delete("second")
    assert await node.get("second") is None


async def test_a_pod_that_does_not_belong_here_is_rejected(node: LocalNode) -> None:
    await node.create(spec={"nodeSelector": {"disk": "ssd"}})

    status = await node.status()
    assert status["reason"] == "NodeAffinity"
    assert status["message"] == (
        "Pod was rejected: Predicate NodeAffinity failed: "
        "node(s) didn't match Pod's node affinity/selector"
    )


async def test_a_finished_pod_makes_room(node: LocalNode) -> None:
    requests = {"resources": {"requests": {"cpu": "8"}}}
    node.runtime.lives["ctr"] = [ContainerRun(after=1)]
    await node.create("first", container=requests, spec={"restartPolicy": "Never"})
    await node.later(2)
    await node.create("second", container=requests, spec={"restartPolicy": "Never"})

    assert (await node.status("second"))["phase"] == "Running"


@pytest.mark.parametrize(
    "container",
    [
        {"resources": {"requests": {"cpu": "8"}}},
        {"ports": [{"containerPort": 80, "hostPort": 8080}]},
    ],
)
async def test_a_pod_waits_for_a_deleted_pod_that_still_runs(
    node: LocalNode, container: dict[str, Any]
) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    await node.create("first", container=container)
    await node.delete("first", grace=0)
    await node.create("second", container=container)

    status = await node.status("second")
    assert status["phase"] == "Pending"
    text = "Waiting for the resources of deleted pods that still run: default/first"
    assert ("Normal", "WaitingForResources", text) in node.events.told
    await node.later(3)
    assert (await node.status("second"))["phase"] == "Running"
    assert len(node.runtime.running()) == 1


async def test_a_pod_that_waits_for_a_deleted_pod_can_be_deleted(node: LocalNode) -> None:
    requests = {"resources": {"requests": {"cpu": "8"}}}
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    await node.create("first", container=requests)
    await node.delete("first", grace=0)
    await node.create("second", container=requests)
    await node.delete("second")

    assert await node.get("second") is None
    assert node.runtime.started() == [("ctr", 0)]


async def test_a_pod_starts_at_once_beside_a_deleted_pod_if_both_fit(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None), ContainerRun()]
    await node.create("first")
    await node.delete("first", grace=0)
    await node.create("second")

    assert (await node.status("second"))["phase"] == "Running"
    assert len(node.runtime.running()) == 2


async def test_the_resources_of_a_pod_are_free_before_its_final_phase_is_written(
    node: LocalNode,
) -> None:
    requests = {"resources": {"requests": {"cpu": "8"}}}
    node.runtime.lives["ctr"] = [ContainerRun(after=1), ContainerRun()]
    await node.create("first", container=requests, spec={"restartPolicy": "Never"})
    # The second pod arrives while the volumes of the first are being unmounted.
    node.volumes.unmounting = asyncio.Event()
    await node.later(2)
    assert (await node.status("first"))["phase"] == "Succeeded"
    await node.create("second", container=requests)

    assert (await node.status("second"))["phase"] == "Running"
    node.volumes.unmounting.set()


async def test_a_restarted_agent_takes_over_what_runs(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(exit_code=1, after=1), ContainerRun()]
    await node.create()
    await node.later(2)
    before = await node.status()
    await node.kill()
    await node.start()
    await node.later(1)

    assert await node.status() == before
    assert len(node.cgroups.updates) == 1, "what it asks for counts in its class as before"
    assert node.runtime.started() == [("ctr", 0), ("ctr", 1)]
    node.runtime.end("ctr", 7)
    await node.later(1)
    container = await node.container()
    assert container["restartCount"] == 2
    assert container["lastState"]["terminated"]["exitCode"] == 7


async def test_what_happens_while_the_agent_is_away_is_made_up_for(node: LocalNode) -> None:
    await node.create("ends", spec={"restartPolicy": "Never"})
    await node.create("leaves")
    await node.create("vanishes")
    await node.kill()
    first = node.runtime.of("ctr")[0]
    node.runtime._end(first.id, 9, "")
    await node.delete("leaves")
    await node.delete("vanishes", grace=0)
    await node.start()
    await node.later(3)

    assert (await node.container(pod="ends"))["state"]["terminated"]["exitCode"] == 9
    assert await node.get("leaves") is None
    assert node.runtime.running() == []
    assert len(node.files.uids()) == 1
    assert len(await node.runtime.sandboxes()) == 1


async def test_what_nobody_knows_is_cleared_away(node: LocalNode, tmp_path: Path) -> None:
    await node.kill()
    stranger = SandboxConfig(namespace="default", name="old", uid="u-old")
    await node.runtime.run_sandbox(stranger)
    node.cgroups.there.add("u-cgroup")
    (tmp_path / "pods/u-files").mkdir(parents=True)
    (tmp_path / "logs/default_gone_u-logs").mkdir(parents=True)
    await node.start()
    await node.later(1)

    assert await node.runtime.sandboxes() == []
    assert node.cgroups.there == set()
    assert node.files.uids() == set()


async def test_readiness_is_not_lost_when_the_agent_restarts(node: LocalNode) -> None:
    probe = {"exec": {"command": ["ready"]}, "periodSeconds": 5, "initialDelaySeconds": 0}
    await node.create(container={"readinessProbe": probe})
    assert (await node.container())["ready"] is True
    watch = await node.server.watch(f"{PODS}?watch=true&resourceVersion=0")
    await node.kill()
    node.runtime.commands["ready",] = ExecResult(exit_code=1)
    await node.start()

    assert (await node.container())["ready"] is True
    states = [e["object"]["status"]["containerStatuses"][0]["ready"] for e in await watch.events()]
    assert False not in states
    await node.later(16)
    assert (await node.container())["ready"] is False


async def test_conditions_of_others_are_left_alone(node: LocalNode) -> None:
    await node.create(spec={"readinessGates": [{"conditionType": "example.com/lb"}]})
    ready = {c["type"]: c for c in (await node.status())["conditions"]}["Ready"]
    assert ready["reason"] == "ReadinessGatesNotReady"
    assert ready["message"] == (
        'corresponding condition of pod readiness gate "example.com/lb" does not exist.'
    )
    theirs = {"type": "example.com/lb", "status": "True"}
    await node.server.call(
        "PATCH", f"{PODS}/pod/status", {"status": {"conditions": [theirs]}}, content_type=STRATEGIC
    )
    await node.settle()

    conditions = {c["type"]: c["status"] for c in (await node.status())["conditions"]}
    assert conditions["example.com/lb"] == "True"
    assert conditions["Ready"] == "True"


# Resizes.


def sized(cpu: str) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}}


async def resize(node: LocalNode, name: str, cpu: str) -> None:
    patch = {"spec": {"containers": [{"name": "ctr", **sized(cpu)}]}}
    answer = await node.server.call("PATCH", f"{PODS}/{name}/resize", patch, content_type=STRATEGIC)
    assert answer.status == 200, answer.text
    await node.settle()


async def test_a_pod_is_resized_in_place(node: LocalNode) -> None:
    await node.create(container=sized("1"))
    await resize(node, "pod", "2")

    container = await node.container()
    assert container["allocatedResources"] == {"cpu": "2"}
    assert container["resources"]["requests"] == {"cpu": "2"}
    assert container["restartCount"] == 0
    assert [(name, r.cpu_shares) for name, r in node.runtime.updates] == [("ctr", 2000)]
    assert len(node.cgroups.updates) == 1
    assert node.events.reasons()[-2:] == ["ResizeStarted", "ResizeCompleted"]
    kinds = {c["type"] for c in (await node.status())["conditions"]}
    assert "PodResizeInProgress" not in kinds


async def test_a_resize_may_need_a_restart(node: LocalNode) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    await node.create(container=sized("1") | {"resizePolicy": policy})
    await resize(node, "pod", "2")

    container = await node.container()
    assert container["restartCount"] == 1
    assert container["resources"]["requests"] == {"cpu": "2"}
    assert node.events.messages("Killing") == ["Container ctr resize requires restart"]


async def test_a_resize_that_does_not_fit_waits_until_it_does(node: LocalNode) -> None:
    await node.create("small", container=sized("2"))
    await node.create("large", container=sized("7"))
    await resize(node, "small", "5")
    status = await node.status("small")
    pending = next(c for c in status["conditions"] if c["type"] == "PodResizePending")
    assert pending["reason"] == "Deferred"
    assert pending["message"] == (
        "Node didn't have enough resource: cpu, requested: 5000, used: 7000, capacity: 10000"
    )
    assert (await node.container(pod="small"))["allocatedResources"] == {"cpu": "2"}

    await node.delete("large")
    await node.later(1)
    assert (await node.container(pod="small"))["allocatedResources"] == {"cpu": "5"}
    kinds = {c["type"] for c in (await node.status("small"))["conditions"]}
    assert "PodResizePending" not in kinds


async def test_a_resize_outlives_the_agent(node: LocalNode) -> None:
    await node.create(container=sized("1"))
    await resize(node, "pod", "2")
    updates = len(node.runtime.updates)
    await node.kill()
    await node.start()
    await node.settle()

    assert len(node.runtime.updates) == updates
    assert (await node.container())["resources"]["requests"] == {"cpu": "2"}


async def test_taints_that_drive_pods_away_keep_new_ones_out(node: LocalNode) -> None:
    spec = replace(node.here.node.spec, taints=[Taint(key="gone", effect="NoExecute")])
    node.here.node = replace(node.here.node, spec=spec)
    await node.create()

    assert (await node.status())["reason"] == "TaintToleration"


# The agent is killed at every step, and another one goes on.


class AgentDied(BaseException):
    """Stands for kill -9."""


LIVES = {
    "init": [ContainerRun(after=1)],
    "ctr": [ContainerRun(exit_code=3, after=2), ContainerRun()],
}
POD: dict[str, Any] = {
    "initContainers": [
        {"name": "init", "image": "init"},
        {"name": "side", "image": "side", "restartPolicy": "Always"},
    ]
}
STARTS = [("init", 0), ("side", 0), ("ctr", 0), ("ctr", 1)]
OPERATIONS = 13
"""How often the runtime is asked to change something in the life below."""


async def life(node: LocalNode) -> dict[str, Any]:
    """A pod begins, its container crashes once, and it is deleted; agents come and go."""
    node.runtime.lives |= LIVES
    await node.create(spec=POD)
    for _ in range(12):
        await revive(node)
        await node.later(0.5)
    status = await node.status()
    await node.delete()
    for _ in range(12):
        await revive(node)
        await node.later(0.5)
    return status


async def revive(node: LocalNode) -> None:
    if not node.alive:
        await node.kill()
        await node.start()


def deaths() -> Iterator[tuple[str, int]]:
    for number in range(OPERATIONS):
        yield "before", number
        yield "after", number


@pytest.mark.parametrize(("moment", "number"), list(deaths()))
async def test_an_agent_that_dies_at_any_step_is_made_up_for(
    tmp_path: Path, moment: str, number: int
) -> None:
    async with LocalServer.running() as server:
        node = LocalNode(server, tmp_path)
        seen = 0

        def interrupt(when: str, method: str) -> None:
            nonlocal seen
            if when != moment:
                return
            seen += 1
            if seen == number + 1:
                raise AgentDied

        node.runtime.interrupt = interrupt
        await node.start()
        status = await life(node)

        assert node.runtime.started() == STARTS
        assert status["phase"] == "Running"
        counts = {c["name"]: c["restartCount"] for c in status["initContainerStatuses"]}
        assert counts == {"init": 0, "side": 0}
        container = status["containerStatuses"][0]
        assert container["restartCount"] == 1
        assert container["lastState"]["terminated"]["exitCode"] == 3
        assert await node.get() is None
        assert await node.runtime.sandboxes() == []
        assert node.files.uids() == set()
        assert node.cgroups.there == set()
        assert node.volumes.mounted == set()
        await node.close()


@pytest.mark.parametrize("turns", range(1, 40, 3))
async def test_an_agent_that_dies_at_any_moment_is_made_up_for(tmp_path: Path, turns: int) -> None:
    async with LocalServer.running() as server:
        node = LocalNode(server, tmp_path)
        node.runtime.lives |= LIVES
        await node.start()
        for body in (node.create, node.delete):
            task = asyncio.ensure_future(body(spec=POD) if body is node.create else body())
            for _ in range(turns):
                await asyncio.wait({task}, timeout=0)
            await node.kill()
            await task
            await node.start()
            for _ in range(10):
                await node.later(0.5)
            if body is node.create:
                assert node.runtime.started() == STARTS
                assert (await node.status())["phase"] == "Running"
        assert await node.get() is None
        assert await node.runtime.sandboxes() == []
        assert node.files.uids() == set()
        await node.close()
