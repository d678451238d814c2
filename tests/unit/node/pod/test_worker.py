import asyncio
from typing import Any

import pytest

from kedge.api.core_v1.pod.status import ResourceHealth, ResourceStatus
from kedge.node.pod.dependencies import (
    ClaimFailure,
    ConfigFailure,
    ImageFailure,
    VolumeFailure,
)
from kedge.node.runtime.runtime import ExecResult, RunState, RuntimeFailure
from kedge.testing.node import PODS, LocalNode
from kedge.testing.runtime import ContainerRun

SIDECAR = {"name": "side", "image": "side", "restartPolicy": "Always"}
INIT = {"name": "init", "image": "init"}


async def test_a_start_is_told_in_order(node: LocalNode) -> None:
    await node.create()

    assert (await node.status())["phase"] == "Running"
    assert node.runtime.calls == [
        ("run_sandbox", "pod", "0"),
        ("create_container", "ctr", "0"),
        ("start_container", "ctr", "0"),
    ]
    assert node.events.told == [
        (
            "Normal",
            "Pulled",
            'Container image "image" already present on machine and can be accessed by the pod',
        ),
        ("Normal", "Created", "Container created"),
        ("Normal", "Started", "Container started"),
    ]
    assert set(node.events.paths) == {"spec.containers{ctr}"}


async def test_a_pod_that_has_done_its_work_succeeds_and_gives_back_what_it_used(
    node: LocalNode,
) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(after=5)]
    await node.create(spec={"restartPolicy": "Never"})
    await node.later(6)

    status = await node.status()
    assert status["phase"] == "Succeeded"
    conditions = {c["type"]: (c["status"], c.get("reason")) for c in status["conditions"]}
    assert conditions["Ready"] == ("False", "PodCompleted")
    assert conditions["Initialized"] == ("True", "PodCompleted")
    assert status["podIP"] == "10.0.0.1"
    assert node.volumes.mounted == set()
    assert node.cgroups.there == set()
    assert node.runtime.of("ctr"), "its logs are kept as long as the pod is there"


async def test_a_pod_that_fails_once_and_for_all_says_so(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(exit_code=3, after=1)]
    await node.create(spec={"restartPolicy": "Never"})
    await node.later(2)

    assert (await node.status())["phase"] == "Failed"
    state = (await node.container())["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (3, "Error")


async def test_a_container_that_crashes_backs_off_longer_and_longer(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(exit_code=1, after=1)]
    await node.create()
    uid = (await node.get() or {})["metadata"]["uid"]

    await node.later(1.5)
    assert node.runtime.started() == [("ctr", 0), ("ctr", 1)], "the first time at once"
    await node.later(1.5)
    container = await node.container()
    assert container["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": f"back-off 10s restarting failed container=ctr pod=pod_default({uid})",
    }
    assert container["lastState"]["terminated"]["exitCode"] == 1
    assert container["restartCount"] == 1
    assert (await node.status())["phase"] == "Running"
    assert node.events.messages("BackOff") == [
        f"Back-off restarting failed container ctr in pod pod_default({uid})"
    ]

    await node.later(10)
    assert node.runtime.started()[-1] == ("ctr", 2)
    await node.later(2)
    assert "back-off 20s" in (await node.container())["state"]["waiting"]["message"]
    for seconds in (20, 40, 80, 160, 300):
        await node.later(seconds)
        await node.later(2)
    assert "back-off 5m0s" in (await node.container())["state"]["waiting"]["message"]


async def test_a_container_that_held_out_for_long_starts_over_at_once(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [
        ContainerRun(exit_code=1, after=1),
        ContainerRun(exit_code=1, after=700),
        ContainerRun(),
    ]
    await node.create()
    await node.later(2)
    await node.later(701)

    assert node.runtime.started() == [("ctr", 0), ("ctr", 1), ("ctr", 2)]


async def test_only_the_last_two_containers_of_a_name_are_kept(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(exit_code=1, after=1)]
    await node.create()
    await node.later(15)
    await node.later(25)

    assert [c.attempt for c in node.runtime.of("ctr")] == [2, 3][-2:]


async def test_init_containers_run_one_after_the_other(node: LocalNode) -> None:
    second = {"name": "second", "image": "init"}
    node.runtime.lives |= {"init": [ContainerRun(after=1)], "second": [ContainerRun(after=1)]}
    await node.create(spec={"initContainers": [INIT, second]})
    status = await node.status()
    assert status["phase"] == "Pending"
    assert (await node.container())["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = next(c for c in status["conditions"] if c["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [init second]"

    await node.later(1.1)
    assert node.runtime.running() == ["second"]
    await node.later(1.1)
    assert node.runtime.running() == ["ctr"]
    status = await node.status()
    assert status["phase"] == "Running"
    assert [c["ready"] for c in status["initContainerStatuses"]] == [True, True]


async def test_an_init_container_that_fails_for_good_fails_the_pod(node: LocalNode) -> None:
    node.runtime.lives["init"] = [ContainerRun(exit_code=1, after=1)]
    await node.create(spec={"initContainers": [INIT], "restartPolicy": "Never"})
    await node.later(2)

    assert (await node.status())["phase"] == "Failed"
    assert node.runtime.started() == [("init", 0)]
    assert (await node.container())["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_an_init_container_that_fails_is_tried_again(node: LocalNode) -> None:
    node.runtime.lives["init"] = [ContainerRun(exit_code=1, after=1), ContainerRun(after=1)]
    await node.create(spec={"initContainers": [INIT]})
    await node.later(1.5)
    await node.later(1.5)

    assert node.runtime.started() == [("init", 0), ("init", 1), ("ctr", 0)]
    assert (await node.container("init"))["restartCount"] == 1


async def test_a_sidecar_starts_first_and_is_started_again(node: LocalNode) -> None:
    await node.create(spec={"initContainers": [SIDECAR]})
    assert node.runtime.started() == [("side", 0), ("ctr", 0)]

    node.runtime.end("side", 1)
    await node.settle()
    assert node.runtime.started()[-1] == ("side", 1)
    assert (await node.status())["phase"] == "Running"


async def test_sidecars_go_last_and_in_reverse(node: LocalNode) -> None:
    other = {**SIDECAR, "name": "other"}
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=3)]
    await node.create(spec={"initContainers": [SIDECAR, other]})
    await node.delete()
    await node.later(4)

    stops = [call[1] for call in node.runtime.calls if call[0] == "stop_container"]
    assert stops == ["ctr", "other", "side"]
    assert await node.get() is None


async def test_sidecars_do_not_keep_a_finished_pod_alive(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(after=1)]
    await node.create(spec={"initContainers": [SIDECAR], "restartPolicy": "OnFailure"})
    await node.later(2)

    assert (await node.status())["phase"] == "Succeeded"
    assert node.runtime.running() == []


async def test_the_last_status_is_told_before_the_object_goes(node: LocalNode) -> None:
    watch = await node.server.watch(f"{PODS}?watch=true&resourceVersion=0")
    await node.create()
    await node.delete()

    assert await node.get() is None
    events = [e for e in await watch.events() if e["type"] in ("MODIFIED", "DELETED")]
    last = events[-2]["object"]["status"]
    assert events[-1]["type"] == "DELETED"
    assert last["phase"] == "Failed"
    assert last["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert node.runtime.of("ctr") == []
    assert node.files.uids() == set()
    assert node.pods.pods() == []


async def test_a_container_that_does_not_obey_is_killed_when_its_grace_is_over(
    node: LocalNode,
) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    await node.create(spec={"terminationGracePeriodSeconds": 7})
    await node.delete()
    assert (await node.get() or {})["metadata"]["deletionGracePeriodSeconds"] == 7
    await node.later(8)

    assert await node.get() is None
    assert node.events.messages("Killing") == ["Stopping container ctr"]


async def test_a_shorter_grace_hurries_a_pod_that_is_ending(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    await node.create(spec={"terminationGracePeriodSeconds": 600})
    await node.delete()
    await node.later(5)
    await node.delete(grace=3)
    await node.later(4)

    assert await node.get() is None
    assert node.events.messages("Killing") == ["Stopping container ctr"], "told once"


async def test_a_pod_removed_by_force_is_stopped_and_cleared_away(node: LocalNode) -> None:
    await node.create()
    await node.delete(grace=0)
    await node.later(1)

    assert node.runtime.running() == []
    assert node.runtime.of("ctr") == []
    assert node.files.uids() == set()
    assert node.cgroups.there == set()


async def test_deletion_does_not_wait_for_an_image(node: LocalNode) -> None:
    node.images.gates["image"] = asyncio.Event()
    await node.create()
    assert node.events.messages("Pulling") == ['Pulling image "image"']
    await node.later(1)
    assert (await node.container())["state"] == {"waiting": {"reason": "ContainerCreating"}}
    await node.delete()

    assert await node.get() is None
    assert node.runtime.started() == []


async def test_an_image_that_cannot_be_pulled_backs_off(node: LocalNode) -> None:
    node.images.pulled.add("image")
    node.images.failures["image"] = ImageFailure("ErrImagePull", "no such image")
    await node.create()
    assert (await node.container())["state"]["waiting"] == {
        "reason": "ErrImagePull",
        "message": "no such image",
    }
    assert node.events.messages("Failed") == [
        'Failed to pull image "image": no such image',
        "Error: ErrImagePull",
    ]

    await node.later(6)
    assert (await node.container())["state"]["waiting"] == {
        "reason": "ImagePullBackOff",
        "message": 'Back-off pulling image "image": ErrImagePull: no such image',
    }
    assert node.events.messages("BackOff") == ['Back-off pulling image "image"']
    await node.later(5)
    assert node.images.asked == ["image", "image"]
    await node.later(15)
    assert len(node.images.asked) == 2, "the second time it waits twice as long"

    del node.images.failures["image"]
    await node.later(10)
    assert (await node.status())["phase"] == "Running"
    assert "Successfully pulled image" in node.events.messages("Pulled")[0]


async def test_an_image_that_must_not_be_pulled_says_so(node: LocalNode) -> None:
    text = 'Container image "image" is not present with pull policy of Never'
    node.images.failures["image"] = ImageFailure("ErrImageNeverPull", text)
    await node.create(container={"imagePullPolicy": "Never"})

    waiting = (await node.container())["state"]["waiting"]
    assert waiting == {"reason": "ErrImageNeverPull", "message": text}
    assert node.events.messages("ErrImageNeverPull") == [text]


async def test_a_missing_configuration_is_waited_for(node: LocalNode) -> None:
    node.environment.failures.append(ConfigFailure('configmap "a" not found'))
    await node.create()
    assert (await node.container())["state"]["waiting"] == {
        "reason": "CreateContainerConfigError",
        "message": 'configmap "a" not found',
    }
    assert node.events.messages("Failed") == ['Error: configmap "a" not found']
    await node.later(1)
    assert (await node.status())["phase"] == "Running"


@pytest.mark.parametrize(
    ("method", "reason"),
    [("create_container", "CreateContainerError"), ("start_container", "RunContainerError")],
)
async def test_what_the_runtime_refuses_is_the_reason(
    node: LocalNode, method: str, reason: str
) -> None:
    node.runtime.failures[method].append(RuntimeFailure("exec: no such file"))
    await node.create()
    waiting = (await node.container())["state"]["waiting"]
    assert waiting == {"reason": reason, "message": "exec: no such file"}
    assert node.events.messages("Failed") == ["Error: exec: no such file"]
    await node.later(1)
    assert (await node.status())["phase"] == "Running"


async def test_a_sandbox_that_cannot_be_made_is_tried_again(node: LocalNode) -> None:
    node.runtime.failures["run_sandbox"] += [RuntimeFailure("no network")] * 2
    await node.create()
    assert (await node.container())["state"] == {"waiting": {"reason": "ContainerCreating"}}
    await node.later(1)
    await node.later(2)
    assert (
        node.events.messages("FailedCreatePodSandBox")
        == ["Failed to create pod sandbox: no network"] * 2
    )
    assert (await node.status())["phase"] == "Running"


async def test_a_volume_that_is_not_there_yet_is_waited_for(node: LocalNode) -> None:
    node.volumes.failures.append(VolumeFailure("FailedMount", 'secret "s" not found'))
    await node.create()
    assert node.runtime.calls == []
    assert node.events.told == [("Warning", "FailedMount", 'secret "s" not found')]
    await node.later(1)
    assert (await node.status())["phase"] == "Running"


async def test_a_pod_past_its_deadline_is_stopped(node: LocalNode) -> None:
    await node.create(spec={"activeDeadlineSeconds": 10, "restartPolicy": "Never"})
    await node.later(11)

    status = await node.status()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert node.runtime.running() == []


async def test_a_new_image_restarts_the_container(node: LocalNode) -> None:
    await node.create(spec={"restartPolicy": "Never"})
    patch = {"spec": {"containers": [{"name": "ctr", "image": "other"}]}}
    await node.server.call(
        "PATCH", f"{PODS}/pod", patch, content_type="application/strategic-merge-patch+json"
    )
    await node.settle()

    assert node.events.messages("Killing") == [
        "Container ctr definition changed, will be restarted"
    ]
    container = await node.container()
    assert container["image"] == "docker.io/other"
    assert container["restartCount"] == 1
    assert (await node.status())["phase"] == "Running"


async def test_an_ephemeral_container_joins_once(node: LocalNode) -> None:
    await node.create()
    debug = {"name": "debug", "image": "tools", "targetContainerName": "ctr"}
    await node.server.call(
        "PATCH",
        f"{PODS}/pod/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [debug]}},
        content_type="application/strategic-merge-patch+json",
    )
    await node.settle()
    assert node.runtime.running() == ["ctr", "debug"]
    target = node.runtime.specs[node.runtime.newest("debug").id].security.pid_target
    assert target == node.runtime.newest("ctr").id
    node.runtime.end("debug", 1)
    await node.settle()

    state = (await node.container("debug"))["state"]["terminated"]
    assert state["exitCode"] == 1
    assert len(node.runtime.of("debug")) == 1


LIVENESS: dict[str, Any] = {
    "livenessProbe": {"exec": {"command": ["alive"]}, "periodSeconds": 5, "failureThreshold": 2}
}


async def test_a_container_that_fails_its_liveness_probe_is_restarted(node: LocalNode) -> None:
    await node.create(container=LIVENESS)
    node.runtime.commands["alive",] = ExecResult(exit_code=1, stdout=b"dead")
    await node.later(5)
    assert node.runtime.started() == [("ctr", 0)]
    await node.later(5)

    assert node.runtime.started() == [("ctr", 0), ("ctr", 1)]
    assert node.events.messages("Unhealthy")[:2] == ["Liveness probe failed: dead"] * 2
    assert node.events.messages("Killing") == [
        "Container ctr failed liveness probe, will be restarted"
    ]
    assert (await node.container())["restartCount"] == 1


async def test_a_probe_may_give_its_container_less_time(node: LocalNode) -> None:
    probe = LIVENESS["livenessProbe"] | {"terminationGracePeriodSeconds": 4}
    node.runtime.commands["alive",] = ExecResult(exit_code=1)
    await node.create(container={"livenessProbe": probe})
    await node.later(6)

    assert ("stop_container", "ctr", "4") in node.runtime.calls


async def test_readiness_follows_its_probe(node: LocalNode) -> None:
    node.runtime.commands["ready",] = ExecResult(exit_code=1)
    probe = {"exec": {"command": ["ready"]}, "periodSeconds": 5, "failureThreshold": 1}
    await node.create(container={"readinessProbe": probe})
    assert (await node.container())["ready"] is False
    status = await node.status()
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["reason"] == "ContainersNotReady"
    assert ready["message"] == "containers with unready status: [ctr]"

    node.runtime.commands["ready",] = ExecResult(exit_code=0)
    await node.later(5)
    assert (await node.container())["ready"] is True


async def test_readiness_follows_its_probe_while_the_pod_ends(node: LocalNode) -> None:
    node.runtime.commands["ready",] = ExecResult(exit_code=0)
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    probe = {"exec": {"command": ["ready"]}, "periodSeconds": 5, "failureThreshold": 1}
    await node.create(
        container={"readinessProbe": probe}, spec={"terminationGracePeriodSeconds": 600}
    )
    assert (await node.container())["ready"] is True

    await node.delete()
    node.runtime.commands["ready",] = ExecResult(exit_code=1)
    await node.later(5)
    assert (await node.container())["ready"] is False


async def test_other_probes_wait_for_the_startup_probe(node: LocalNode) -> None:
    node.runtime.commands["up",] = ExecResult(exit_code=1)
    startup = {"exec": {"command": ["up"]}, "periodSeconds": 2, "failureThreshold": 30}
    await node.create(container=LIVENESS | {"startupProbe": startup})
    await node.later(20)
    assert ("ctr", ("alive",)) not in node.runtime.executed
    assert (await node.container())["started"] is False

    node.runtime.commands["up",] = ExecResult(exit_code=0)
    await node.later(2)
    assert (await node.container())["started"] is True
    assert ("ctr", ("alive",)) in node.runtime.executed


async def test_a_sidecar_that_has_not_started_holds_back_the_rest(node: LocalNode) -> None:
    node.runtime.commands["up",] = ExecResult(exit_code=1)
    startup = {"exec": {"command": ["up"]}, "periodSeconds": 1, "failureThreshold": 30}
    await node.create(spec={"initContainers": [SIDECAR | {"startupProbe": startup}]})
    await node.later(3)
    assert node.runtime.running() == ["side"]
    assert (await node.status())["phase"] == "Pending"
    node.runtime.commands["up",] = ExecResult(exit_code=0)
    await node.later(1)
    assert node.runtime.running() == ["side", "ctr"]


async def test_a_post_start_hook_that_fails_kills_the_container(node: LocalNode) -> None:
    node.runtime.commands["hook",] = ExecResult(exit_code=1, stderr=b"secret")
    lifecycle = {"postStart": {"exec": {"command": ["hook"]}}}
    await node.create(container={"lifecycle": lifecycle})

    assert node.events.messages("FailedPostStartHook") == ["PostStartHook failed"]
    assert node.events.messages("Killing") == ["FailedPostStartHook"]
    container = await node.container()
    assert container["state"]["waiting"]["reason"] == "PostStartHookError"


async def test_a_container_is_told_before_it_is_stopped(node: LocalNode) -> None:
    lifecycle = {"preStop": {"exec": {"command": ["bye"]}}}
    await node.create(container={"lifecycle": lifecycle})
    await node.delete()

    assert node.runtime.executed == [("ctr", ("bye",))]
    assert await node.get() is None


async def test_a_pre_stop_pause_counts_against_the_grace(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(obeys_after=None)]
    lifecycle = {"preStop": {"sleep": {"seconds": 20}}}
    await node.create(container={"lifecycle": lifecycle})
    await node.delete()
    await node.later(20)

    stop = next(call for call in node.runtime.calls if call[0] == "stop_container")
    assert float(stop[2]) == pytest.approx(10, abs=0.5)


async def test_last_words_are_in_the_status(node: LocalNode) -> None:
    await node.create(spec={"restartPolicy": "Never"})
    uid = (await node.get() or {})["metadata"]["uid"]
    node.files.termination_log(uid, "ctr", 0).write_text("all is well")
    node.runtime.end("ctr")
    await node.settle()

    assert (await node.container())["state"]["terminated"]["message"] == "all is well"


async def test_volumes_are_looked_after_while_a_pod_runs(node: LocalNode) -> None:
    volume = {"configMap": {"name": "c"}}
    await node.create(volume=volume)
    assert node.volumes.mounts == 1
    await node.later(601)
    assert node.volumes.mounts == 2
    await node.server.merge(f"{PODS}/pod", {"metadata": {"labels": {"a": "b"}}})
    await node.settle()
    assert node.volumes.mounts == 3, "labels show in volumes of the downward API"


async def test_a_lost_sandbox_is_made_again(node: LocalNode) -> None:
    node.runtime.lives["init"] = [ContainerRun(after=1)]
    await node.create(spec={"initContainers": [INIT]})
    await node.later(2)
    node.runtime.lose_everything()
    await node.later(1)
    await node.later(2)

    assert ("run_sandbox", "pod", "1") in node.runtime.calls
    assert node.runtime.started() == [("init", 0), ("ctr", 0), ("init", 1), ("ctr", 1)]
    assert (await node.container())["restartCount"] == 1
    assert "Pod sandbox changed, it will be killed and re-created." in node.events.messages(
        "SandboxChanged"
    )


async def test_a_pod_that_runs_once_does_not_run_again_when_it_is_lost(node: LocalNode) -> None:
    await node.create(spec={"restartPolicy": "Never"})
    node.runtime.lose_everything()
    await node.later(1)

    assert node.runtime.started() == [("ctr", 0)]
    assert (await node.status())["phase"] == "Failed"
    state = (await node.container())["state"]["terminated"]
    assert (state["exitCode"], state["reason"]) == (137, "ContainerStatusUnknown")


async def test_rules_of_a_container_decide_about_its_restart(node: LocalNode) -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    node.runtime.lives["ctr"] = [
        ContainerRun(exit_code=42, after=1),
        ContainerRun(exit_code=1, after=1),
    ]
    await node.create(
        spec={"restartPolicy": "Never"},
        container={"restartPolicy": "Never", "restartPolicyRules": rules},
    )
    await node.later(1.5)
    await node.later(1.5)

    assert node.runtime.started() == [("ctr", 0), ("ctr", 1)]
    assert (await node.status())["phase"] == "Failed"


async def test_one_container_can_restart_them_all(node: LocalNode) -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}]
    watcher = {
        "name": "watcher",
        "image": "w",
        "restartPolicy": "Never",
        "restartPolicyRules": rules,
    }
    plain = {"name": "ctr", "image": "image"}
    node.runtime.lives |= {"init": [ContainerRun(after=1)]}
    await node.create(spec={"initContainers": [INIT], "containers": [plain, watcher]})
    await node.later(2)
    assert node.runtime.running() == ["ctr", "watcher"]
    node.runtime.end("watcher", 88)
    await node.later(2)
    await node.later(2)

    assert node.runtime.started()[3:] == [("init", 1), ("ctr", 1), ("watcher", 1)]
    assert {c.state for c in (node.runtime.newest("ctr"), node.runtime.newest("watcher"))} == {
        RunState.RUNNING
    }


OWN_USERS = {"hostUsers": False}


async def test_a_pod_keeps_its_ids_as_long_as_it_is_there(node: LocalNode) -> None:
    await node.create(spec=OWN_USERS)
    assert [each.first_id for each in node.runtime.sandbox_specs.values()] == [65_536]
    await node.kill()
    await node.start()
    assert list(node.user_ids.given.values()) == [65_536]
    await node.delete()
    await node.later(40)
    assert node.user_ids.given == {}


async def test_a_pod_that_has_ended_needs_no_ids(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(after=5)]
    await node.create(spec={**OWN_USERS, "restartPolicy": "Never"})
    assert list(node.user_ids.given.values()) == [65_536]
    await node.later(6)
    assert (await node.status())["phase"] == "Succeeded"
    assert node.user_ids.given == {}


async def test_a_pod_that_cannot_have_ids_of_its_own_waits_and_says_why(node: LocalNode) -> None:
    node.user_ids.failure = "can't set `spec.hostUsers: false`"
    await node.create(spec=OWN_USERS)
    text = "Failed to create pod sandbox: can't set `spec.hostUsers: false`"
    assert node.events.messages("FailedCreatePodSandBox") == [text]
    assert (await node.status())["phase"] == "Pending"
    assert node.runtime.calls == []


async def test_a_profile_that_cannot_be_enforced_is_refused(node: LocalNode) -> None:
    context = {"appArmorProfile": {"type": "RuntimeDefault"}}
    await node.create(spec={"securityContext": context})
    status = await node.status()
    text = "Cannot enforce AppArmor: AppArmor is not enabled on the host"
    assert (status["phase"], status["reason"]) == ("Failed", "AppArmor")
    assert text in status["message"]
    assert node.events.messages("AppArmor") == [text]


CLAIMS = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}


async def test_a_pod_waits_until_its_claims_are_prepared(node: LocalNode) -> None:
    node.claims.failures = [ClaimFailure("no driver")] * 2
    node.claims.devices = ["v/c=d"]
    await node.create(spec=CLAIMS)
    assert (await node.status())["phase"] == "Pending"
    assert node.runtime.calls == []
    await node.later(5)
    assert (await node.status())["phase"] == "Running"
    assert node.events.reasons().count("FailedPrepareDynamicResources") == 2
    assert node.devices.claimed == ["v/c=d"]


async def test_a_pod_does_not_end_before_its_claims_are_unprepared(node: LocalNode) -> None:
    node.runtime.lives["ctr"] = [ContainerRun(after=5)]
    await node.create(spec={"restartPolicy": "Never"} | CLAIMS)
    node.claims.failures = [ClaimFailure("no driver")] * 100
    await node.later(8)
    assert (await node.status())["phase"] == "Running"
    assert set(node.events.messages("FailedUnprepareDynamicResources")) == {
        "Failed to unprepare dynamic resources: no driver"
    }
    node.claims.failures.clear()
    await node.later(10)
    assert (await node.status())["phase"] == "Succeeded"
    assert node.claims.prepared == set()


async def test_the_status_shows_the_health_of_resources_and_of_claims(node: LocalNode) -> None:
    health = [ResourceHealth(resourceID="d", health="Healthy")]
    node.claims.told = {"ctr": [ResourceStatus(name="claim:c", resources=health)]}
    await node.create(spec=CLAIMS)
    assert (await node.container())["allocatedResourcesStatus"] == [
        {"name": "claim:c", "resources": [{"resourceID": "d", "health": "Healthy"}]}
    ]
