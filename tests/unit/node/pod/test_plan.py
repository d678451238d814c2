from typing import Any

import pytest
from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import Pod
from kedge.node.pod import labels
from kedge.node.pod.actions import (
    ContainerKind,
    RemoveContainer,
    RemoveSandbox,
    ResizeContainers,
    RunSandbox,
    StartContainer,
    StopContainer,
    StopContainers,
    StopSandbox,
)
from kedge.node.pod.admission import PodRejection
from kedge.node.pod.backoff import BackoffDelay
from kedge.node.pod.plan import PlanInput, PodPlan, ProbeVerdicts, plan
from kedge.node.pod.runtime_cache import PodRuntimeState, pod_runtime_state
from kedge.node.pod.termination import PodTermination
from kedge.node.pod.waiting import POD_STEP, RESIZE_STEP, StepFailure, WaitingReason
from kedge.node.pod.worker_state import ApiObjectState, WorkerState
from kedge.node.runtime.runtime import PodSandbox, RunState, RuntimeContainer
from kedge.testing.pods import new_pod

NOW = 1_000_000.0
SECOND = 10**9
REMOVED = WorkerState(api_object=ApiObjectState.REMOVED)
RUNNING, EXITED, CREATED = RunState.RUNNING, RunState.EXITED, RunState.CREATED


def pod(**parts: Any) -> Pod:
    made = new_pod(metadata={"uid": "u"}, **parts)
    return made


def containers(*names: str) -> dict[str, Any]:
    return {"containers": [{"name": name, "image": "i"} for name in names]}


def init(*names: str, sidecars: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    """A pod with init containers, those in `sidecars` lasting, and one main container `ctr`."""
    made = [
        {"name": name, "image": "i"} | ({"restartPolicy": "Always"} if name in sidecars else {})
        for name in names
    ]
    return {"initContainers": made, "containers": [{"name": "ctr", "image": "i"}], **spec}


def sandbox(attempt: int = 0, *, ready: bool = True) -> PodSandbox:
    return PodSandbox(
        id=f"s{attempt}", namespace="default", name="pod", uid="u", attempt=attempt, ready=ready
    )


def record(
    of: Pod,
    name: str,
    state: RunState,
    *,
    attempt: int = 0,
    exit_code: int = 0,
    ended: float = NOW - 1,
    inside: str = "s0",
    image: str = "",
) -> RuntimeContainer:
    spec = next(
        c
        for c in (*of.spec.containers, *of.spec.initContainers, *of.spec.ephemeralContainers)
        if c.name == name
    )
    if image:
        spec = replace(spec, image=image)
    return RuntimeContainer(
        id=f"{name}-{attempt}",
        sandbox=inside,
        name=name,
        attempt=attempt,
        state=state,
        exit_code=exit_code,
        finished_at=int(ended * SECOND) if state is EXITED else 0,
        annotations=labels.container_annotations(of, spec, "", ""),
    )


def seen(
    *records: RuntimeContainer, sandboxes: tuple[PodSandbox, ...] = (sandbox(),)
) -> PodRuntimeState:
    return pod_runtime_state(sandboxes, records)


def plan_for(of: Pod, *records: RuntimeContainer, **situation: Any) -> PodPlan:
    known = situation.pop("observed", None) or seen(*records)
    return plan(PlanInput(pod=of, now=NOW, observed=known, **situation))


def start(
    name: str,
    attempt: int = 0,
    kind: ContainerKind = ContainerKind.MAIN,
    delay: float | None = None,
) -> StartContainer:
    return StartContainer(kind, name, attempt, None if delay is None else BackoffDelay(delay, NOW))


# The sandbox.


def test_the_sandbox_comes_first() -> None:
    assert plan(PlanInput(pod=pod(), now=NOW)).actions == (RunSandbox(0),)


def test_a_rejected_pod_ends_without_any_action() -> None:
    rejected = WorkerState(rejection=PodRejection("OutOfcpu", "too little"))
    assert plan(PlanInput(pod=pod(), now=NOW, state=rejected)) == PodPlan(
        termination=PodTermination(0)
    )


def test_a_lost_sandbox_is_replaced_by_the_next() -> None:
    of = pod()
    known = seen(record(of, "ctr", EXITED, exit_code=137), sandboxes=(sandbox(3, ready=False),))
    assert plan_for(of, observed=known).actions == (RunSandbox(4),)


def test_a_container_that_outlives_its_sandbox_is_stopped_at_once() -> None:
    of = pod()
    known = seen(record(of, "ctr", RUNNING), sandboxes=(sandbox(0, ready=False),))
    assert plan_for(of, observed=known).actions == (
        StopContainer("ctr-0", "ctr", 0, "Pod sandbox changed", hook=False),
        RunSandbox(1),
    )


def test_of_two_ready_sandboxes_the_older_one_is_stopped() -> None:
    of = pod()
    known = seen(record(of, "ctr", RUNNING, inside="s1"), sandboxes=(sandbox(1), sandbox(0)))
    assert plan_for(of, observed=known).actions == (StopSandbox("s0"),)


def test_after_a_new_sandbox_init_containers_run_again() -> None:
    of = pod(spec=init("one"))
    known = seen(
        record(of, "one", EXITED),
        record(of, "ctr", EXITED, exit_code=137),
        sandboxes=(sandbox(1), sandbox(0, ready=False)),
    )
    assert plan_for(of, observed=known).actions == (start("one", 1, ContainerKind.INIT, delay=10),)


def test_a_pod_that_runs_once_gets_no_second_sandbox() -> None:
    of = pod(spec={"restartPolicy": "Never", **containers("ctr")})
    known = seen(record(of, "ctr", EXITED, exit_code=137), sandboxes=(sandbox(ready=False),))
    found = plan_for(of, observed=known)
    assert found.actions == ()
    assert found.termination is not None


def test_a_pod_that_runs_once_gets_another_sandbox_if_nothing_ran() -> None:
    of = pod(spec={"restartPolicy": "Never", **containers("ctr")})
    known = seen(record(of, "ctr", CREATED), sandboxes=(sandbox(ready=False),))
    assert plan_for(of, observed=known).actions == (RunSandbox(1),)


def test_a_sandbox_that_failed_waits() -> None:
    failure = StepFailure("FailedCreatePodSandBox", "no", NOW - 1, BackoffDelay(4, NOW - 1))
    found = plan(PlanInput(pod=pod(), now=NOW, failures={POD_STEP: failure}))
    assert found.actions == ()
    assert found.wake == NOW + 3
    due = replace(failure, delay=BackoffDelay(1, NOW - 1))
    assert plan(PlanInput(pod=pod(), now=NOW, failures={POD_STEP: due})).actions == (RunSandbox(0),)


def test_an_old_sandbox_is_kept_for_the_last_state_of_its_containers() -> None:
    of = pod()
    old, new = sandbox(0, ready=False), sandbox(1)
    first = record(of, "ctr", EXITED, exit_code=137)
    second = record(of, "ctr", RUNNING, attempt=1, inside="s1")
    assert plan_for(of, observed=seen(first, second, sandboxes=(new, old))).actions == ()
    third = record(of, "ctr", RUNNING, attempt=2, inside="s1")
    second = record(of, "ctr", EXITED, attempt=1, inside="s1")
    known = seen(first, second, third, sandboxes=(new, old))
    assert plan_for(of, observed=known).actions == (RemoveContainer("ctr-0"), RemoveSandbox("s0"))


# Main containers.


def test_main_containers_start_side_by_side() -> None:
    of = pod(spec=containers("a", "b"))
    assert plan_for(of).actions == (start("a"), start("b"))


def test_nothing_is_done_for_what_runs() -> None:
    of = pod()
    found = plan_for(of, record(of, "ctr", RUNNING))
    assert found == PodPlan()


@pytest.mark.parametrize(
    ("policy", "exit_code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Never", 0, False),
        ("Never", 1, False),
    ],
)
def test_the_restart_policy_decides(policy: str, exit_code: int, again: bool) -> None:
    of = pod(spec={"restartPolicy": policy, **containers("ctr", "other")})
    found = plan_for(
        of, record(of, "ctr", EXITED, exit_code=exit_code), record(of, "other", RUNNING)
    )
    assert found.actions == ((start("ctr", 1, delay=10),) if again else ())
    assert found.termination is None


def test_a_container_that_was_made_but_never_ran_is_made_again_and_not_counted() -> None:
    of = pod()
    found = plan_for(of, record(of, "ctr", CREATED, attempt=2))
    assert found.actions == (RemoveContainer("ctr-2"), start("ctr", 2))


def test_a_container_that_is_on_its_way_is_waited_for() -> None:
    of = pod()
    found = plan_for(of, replace(record(of, "ctr", CREATED), pid=1000))
    assert found.actions == ()
    assert found.termination is None


def test_a_container_the_runtime_has_lost_goes_on_counting() -> None:
    found = plan_for(pod(), restart_counts={"ctr": 5})
    assert found.actions == (start("ctr", 5),)


def test_a_crash_loop_waits() -> None:
    of = pod()
    crash = record(of, "ctr", EXITED, attempt=4, exit_code=1, ended=NOW - 30)
    found = plan_for(of, crash, crash_delays={"ctr": BackoffDelay(80, NOW - 35)})
    assert found.actions == ()
    assert found.waiting == {
        "ctr": WaitingReason(
            "CrashLoopBackOff",
            "back-off 1m20s restarting failed container=ctr pod=pod_default(u)",
        )
    }
    assert found.wake == NOW + 50


def test_the_next_crash_waits_twice_as_long() -> None:
    of = pod()
    crash = record(of, "ctr", EXITED, attempt=4, exit_code=1, ended=NOW - 81)
    found = plan_for(of, crash, crash_delays={"ctr": BackoffDelay(80, NOW - 90)})
    assert found.actions == (start("ctr", 5, delay=160),)


def test_another_image_is_another_chance() -> None:
    before = pod(spec={"containers": [{"name": "ctr", "image": "old"}]})
    after = pod(spec={"containers": [{"name": "ctr", "image": "new"}]})
    crash = record(before, "ctr", EXITED, attempt=4, exit_code=1, ended=NOW - 1)
    found = plan_for(after, crash, crash_delays={"ctr": BackoffDelay(80, NOW - 5)})
    assert found.actions == (start("ctr", 5, delay=10),)


def test_a_failed_start_is_shown_and_waits() -> None:
    failure = StepFailure("CreateContainerError", "no", NOW - 1, BackoffDelay(2, NOW - 1))
    found = plan_for(pod(), failures={"ctr": failure})
    assert found.actions == ()
    assert found.waiting == {"ctr": WaitingReason("CreateContainerError", "no")}
    assert found.wake == NOW + 1


def test_a_failed_start_is_retried_when_it_is_due_and_shown_until_it_succeeds() -> None:
    failure = StepFailure("CreateContainerError", "no", NOW - 1, BackoffDelay(1, NOW - 1))
    found = plan_for(pod(), failures={"ctr": failure})
    assert found.actions == (start("ctr"),)
    assert found.waiting == {"ctr": WaitingReason("CreateContainerError", "no")}
    assert found.wake is None


def test_the_first_of_several_retries_wakes() -> None:
    failures = {
        name: StepFailure("CreateContainerError", "no", NOW, BackoffDelay(seconds, NOW))
        for name, seconds in (("a", 8), ("b", 2), ("c", 4))
    }
    found = plan_for(pod(spec=containers("a", "b", "c")), failures=failures)
    assert found.actions == ()
    assert found.wake == NOW + 2


@pytest.mark.parametrize(
    ("age", "reason", "wake"),
    [(1, "ErrImagePull", NOW + 4), (6, "ImagePullBackOff", NOW + 4)],
)
def test_a_failed_pull_shows_its_own_reason_at_first(age: float, reason: str, wake: float) -> None:
    failure = StepFailure(
        "ErrImagePull", "no", NOW - age, BackoffDelay(10, NOW - age), is_pull=True, image="i"
    )
    found = plan_for(pod(), failures={"ctr": failure})
    assert found.waiting["ctr"].reason == reason
    assert found.wake == wake


def test_one_container_that_waits_does_not_hold_up_another() -> None:
    failure = StepFailure("ErrImagePull", "no", NOW, BackoffDelay(10, NOW), is_pull=True)
    found = plan_for(pod(spec=containers("a", "b")), failures={"a": failure})
    assert found.actions == (start("b"),)


# Health.


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("Always", "Container ctr failed liveness probe, will be restarted"),
        ("Never", "Container ctr failed liveness probe"),
    ],
)
def test_a_container_that_is_not_alive_is_stopped(policy: str, message: str) -> None:
    of = pod(spec={"restartPolicy": policy, **containers("ctr")})
    found = plan_for(
        of, record(of, "ctr", RUNNING), verdicts=ProbeVerdicts(liveness={"ctr-0": False})
    )
    stop = StopContainer("ctr-0", "ctr", 30, message)
    assert found.actions == ((stop, start("ctr", 1)) if policy == "Always" else (stop,))


def test_a_probe_has_its_own_grace() -> None:
    probe = {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 5}
    of = pod(container={"startupProbe": probe})
    found = plan_for(
        of, record(of, "ctr", RUNNING), verdicts=ProbeVerdicts(startup={"ctr-0": False})
    )
    assert found.actions[0] == StopContainer(
        "ctr-0", "ctr", 5, "Container ctr failed startup probe, will be restarted"
    )


def test_a_pod_without_grace_stops_its_containers_at_once() -> None:
    of = pod(spec={"terminationGracePeriodSeconds": 0, **containers("ctr")})
    found = plan_for(
        of, record(of, "ctr", RUNNING), verdicts=ProbeVerdicts(liveness={"ctr-0": False})
    )
    assert isinstance(found.actions[0], StopContainer)
    assert found.actions[0].grace == 0


def test_a_changed_image_replaces_the_container_whatever_the_policy() -> None:
    of = pod(spec={"restartPolicy": "Never", **containers("ctr")})
    found = plan_for(of, record(of, "ctr", RUNNING, image="old"))
    assert found.actions == (
        StopContainer("ctr-0", "ctr", 30, "Container ctr definition changed, will be restarted"),
        start("ctr", 1),
    )


# Init containers.


def first(found: PodPlan) -> str:
    """What is started."""
    names = [action.name for action in found.actions if isinstance(action, StartContainer)]
    return " ".join(names)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, "one"),
        ({"one": RUNNING}, ""),
        ({"one": EXITED}, "two"),
        ({"one": EXITED, "two": RUNNING}, ""),
        ({"one": EXITED, "two": EXITED}, "ctr"),
        ({"two": EXITED}, "ctr"),
        ({"one": EXITED, "two": EXITED, "ctr": RUNNING}, ""),
        ({"ctr": RUNNING}, ""),
        ({"ctr": EXITED}, "ctr"),
        ({"one": CREATED}, "one"),
    ],
)
def test_init_containers_go_in_order(states: dict[str, RunState], expected: str) -> None:
    of = pod(spec=init("one", "two"))
    assert first(plan_for(of, *(record(of, n, s) for n, s in states.items()))) == expected


def test_after_a_main_container_no_init_container_runs_again() -> None:
    spec = init("one")
    spec["containers"].append({"name": "other", "image": "i"})
    of = pod(spec=spec)
    assert first(plan_for(of, record(of, "ctr", RUNNING))) == "other"


def test_a_failed_init_container_is_tried_again() -> None:
    of = pod(spec=init("one", "two"))
    found = plan_for(of, record(of, "one", EXITED, exit_code=1))
    assert found.actions == (start("one", 1, ContainerKind.INIT, delay=10),)


def test_a_failed_init_container_ends_a_pod_that_runs_once() -> None:
    of = pod(spec=init("one", restartPolicy="Never"))
    found = plan_for(of, record(of, "one", EXITED, exit_code=1))
    assert found.actions == (StopSandbox("s0"),)
    assert found.termination is not None


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({}, "side"),
        ({"side": RUNNING}, "job"),
        ({"side": EXITED}, "side"),
        ({"side": RUNNING, "job": RUNNING}, ""),
        ({"side": RUNNING, "job": EXITED}, "ctr"),
        ({"side": EXITED, "job": RUNNING}, "side"),
        ({"side": EXITED, "job": EXITED}, "side ctr"),
        ({"side": EXITED, "ctr": RUNNING}, "side"),
        ({"ctr": RUNNING}, "side"),
    ],
)
def test_sidecars_are_kept_running_beside_the_rest(
    states: dict[str, RunState], expected: str
) -> None:
    of = pod(spec=init("side", "job", sidecars=("side",)))
    assert first(plan_for(of, *(record(of, n, s) for n, s in states.items()))) == expected


@pytest.mark.parametrize(("startup", "expected"), [({}, ""), ({"side-0": True}, "ctr")])
def test_the_next_waits_until_a_sidecar_has_started(
    startup: dict[str, bool], expected: str
) -> None:
    spec = init("side", sidecars=("side",))
    spec["initContainers"][0]["startupProbe"] = {"exec": {"command": ["x"]}}
    of = pod(spec=spec)
    found = plan_for(of, record(of, "side", RUNNING), verdicts=ProbeVerdicts(startup=startup))
    assert first(found) == expected


@pytest.mark.parametrize(
    ("verdicts", "image", "why"),
    [
        (ProbeVerdicts(liveness={"side-0": False}), "i", "failed liveness probe"),
        (ProbeVerdicts(startup={"side-0": False}), "i", "failed startup probe"),
        (ProbeVerdicts(), "old", "definition changed"),
    ],
)
def test_a_sidecar_that_is_not_well_is_replaced(
    verdicts: ProbeVerdicts, image: str, why: str
) -> None:
    spec = init("side", sidecars=("side",))
    spec["initContainers"][0]["startupProbe"] = {"exec": {"command": ["x"]}}
    of = pod(spec=spec)
    found = plan_for(
        of,
        record(of, "side", RUNNING, image=image),
        record(of, "ctr", RUNNING),
        verdicts=verdicts,
    )
    assert found.actions == (
        StopContainer("side-0", "side", 30, f"Init container side {why}"),
        start("side", 1, ContainerKind.INIT),
    )


# Ephemeral containers.


def test_an_ephemeral_container_starts_once() -> None:
    spec = containers("ctr") | {"ephemeralContainers": [{"name": "debug", "image": "i"}]}
    of = pod(spec=spec)
    ctr = record(of, "ctr", RUNNING)
    assert plan_for(of, ctr).actions == (start("debug", kind=ContainerKind.EPHEMERAL),)
    ended = record(of, "debug", EXITED, exit_code=1)
    assert plan_for(of, ctr, ended).actions == ()


# The end.


def deleted(of: Pod, *, grace: int = 30, at: str = "1970-01-12T13:47:10Z") -> Pod:
    """Deleted so that the time is up thirty seconds after NOW, unless told otherwise."""
    meta = replace(of.metadata, deletionTimestamp=at, deletionGracePeriodSeconds=grace)
    return replace(of, metadata=meta)


def test_a_deleted_pod_ends_with_its_sidecars_last() -> None:
    of = deleted(pod(spec=init("first", "second", sidecars=("first", "second"))))
    records = [record(of, name, RUNNING) for name in ("ctr", "first", "second")]
    (stop_all,) = plan_for(of, *records).actions
    assert isinstance(stop_all, StopContainers)
    after = {stop.name: set(stop.after) for stop in stop_all.stops}
    assert after == {"ctr": set(), "second": {"ctr"}, "first": {"ctr", "second"}}
    assert {stop.grace for stop in stop_all.stops} == {30}


def test_an_agent_that_comes_late_gives_only_what_is_left() -> None:
    of = deleted(pod(), grace=600)
    (stop_all,) = plan_for(of, record(of, "ctr", RUNNING)).actions
    assert isinstance(stop_all, StopContainers)
    assert stop_all.stops[0].grace == 30


def test_a_deleted_pod_starts_nothing() -> None:
    of = deleted(pod())
    found = plan_for(of, record(of, "ctr", EXITED, exit_code=1))
    assert found.actions == (StopSandbox("s0"),)
    done = plan_for(of, observed=seen(sandboxes=(sandbox(ready=False),)))
    assert done.actions == ()
    assert done.termination is not None


def test_a_pod_whose_object_is_gone_ends() -> None:
    of = pod()
    (stop_all,) = plan_for(of, record(of, "ctr", RUNNING), state=REMOVED).actions
    assert isinstance(stop_all, StopContainers)
    assert stop_all.stops[0].grace == 1


def test_a_pod_ends_at_its_deadline() -> None:
    of = pod(spec={"activeDeadlineSeconds": 60, **containers("ctr")})
    begun = replace(of.status, startTime="1970-01-12T13:46:10Z")
    of = replace(of, status=begun)
    early = plan(PlanInput(pod=of, now=NOW, observed=seen(record(of, "ctr", RUNNING))))
    assert early.actions == ()
    assert early.wake == NOW + 30
    late = plan(PlanInput(pod=of, now=NOW + 30, observed=seen(record(of, "ctr", RUNNING))))
    assert isinstance(late.actions[0], StopContainers)
    assert late.termination is not None
    assert late.termination.reason == "DeadlineExceeded"


def test_what_the_api_calls_finished_is_finished() -> None:
    of = pod()
    of = replace(of, status=replace(of.status, phase="Failed"))
    (stop_all,) = plan_for(of, record(of, "ctr", RUNNING)).actions
    assert isinstance(stop_all, StopContainers)


# All at once.


def test_a_rule_may_restart_all_containers_the_one_that_asks_last() -> None:
    rules = [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [9]}}]
    asking = {"name": "b", "image": "i", "restartPolicy": "Never", "restartPolicyRules": rules}
    of = pod(spec={"containers": [{"name": "a", "image": "i"}, asking]})
    found = plan_for(of, record(of, "a", RUNNING), record(of, "b", EXITED, exit_code=9))
    assert found.actions == (
        StopContainer("a-0", "a", 0, "RestartAllContainers", hook=False),
        RemoveContainer("a-0"),
        RemoveContainer("b-0"),
    )


# Resizes.


def sized(cpu: str, **container: Any) -> Pod:
    return pod(container={"resources": {"requests": {"cpu": cpu}}, **container})


def test_a_running_container_is_given_what_is_allotted() -> None:
    running = record(sized("1"), "ctr", RUNNING)
    assert plan_for(sized("1"), running).actions == ()
    assert plan_for(sized("2"), running).actions == (ResizeContainers(("ctr",)),)
    given = {"ctr": sized("2").spec.containers[0].resources}
    assert plan_for(sized("2"), running, actuated=given).actions == ()


def test_a_resize_that_needs_a_restart_restarts() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    running = record(sized("1"), "ctr", RUNNING)
    found = plan_for(sized("2", resizePolicy=policy), running)
    assert found.actions == (
        StopContainer("ctr-0", "ctr", 30, "Container ctr resize requires restart"),
        start("ctr", 1),
    )


def test_one_of_two_resized_resources_may_need_a_restart() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]

    def asking(cpu: str, memory: str) -> Pod:
        amounts = {"cpu": cpu, "memory": memory}
        return pod(container={"resources": {"requests": amounts}, "resizePolicy": policy})

    running = record(asking("1", "1Gi"), "ctr", RUNNING)
    assert plan_for(asking("2", "1Gi"), running).actions == (ResizeContainers(("ctr",)),)
    for of in (asking("2", "2Gi"), asking("1", "2Gi")):
        assert isinstance(plan_for(of, running).actions[0], StopContainer)


@pytest.mark.parametrize("sidecars", [(), ("first",)])
def test_a_running_init_container_or_sidecar_is_resized(sidecars: tuple[str, ...]) -> None:
    def asking(cpu: str) -> Pod:
        spec = init("first", "second", sidecars=sidecars)
        spec["initContainers"][0]["resources"] = {"requests": {"cpu": cpu}}
        return pod(spec=spec)

    found = plan_for(asking("2"), record(asking("1"), "first", RUNNING))
    assert found.actions[-1] == ResizeContainers(("first",))


def test_a_failed_resize_waits() -> None:
    failure = StepFailure("Error", "busy", NOW, BackoffDelay(1, NOW))
    found = plan_for(
        sized("2"), record(sized("1"), "ctr", RUNNING), failures={RESIZE_STEP: failure}
    )
    assert found.actions == ()
    assert found.wake == NOW + 1
