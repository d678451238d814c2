"""From its first container to the end: what happens to a pod, and what kubectl shows of it."""

from typing import Any

import pytest

Json = dict[str, Any]

QUICK = {"periodSeconds": 1, "failureThreshold": 1}


def row(kubectl: Any, name: str) -> dict[str, str]:
    """What `kubectl get pods` says of a pod."""
    found: dict[str, str] = next(r for r in kubectl.table("get pods") if r["NAME"] == name)
    return found


# Phases and restarts.


def test_a_pod_runs_and_its_status_is_whole(
    any_kubectl: Any, pods: Any, about: Any, node: Json
) -> None:
    any_kubectl("run hello --image=host -- sh -c 'echo hello; exec sleep 1000'")
    pod = pods.ready("hello")
    status = pod["status"]
    assert status["phase"] == "Running"
    assert status["qosClass"] == "BestEffort"
    assert status["startTime"]
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert {each["type"]: each["status"] for each in status["conditions"]} == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"),
        "True",
    )
    main = about.status(pod, "hello")
    assert (main["ready"], main["started"], main["restartCount"]) == (True, True, 0)
    assert main["containerID"].startswith("kedge://")
    assert row(any_kubectl, "hello")["STATUS"] == "Running"
    assert row(any_kubectl, "hello")["READY"] == "1/1"
    assert any_kubectl.says("logs hello") == "hello"
    reasons = [each.partition(":")[0] for each in pods.events("hello")]
    if node["metadata"]["labels"]["kedge.dev/level"] != "full":
        # Other levels say what of the pod they cannot enforce.
        reasons = [each for each in reasons if each != "NotEnforced"]
    assert reasons == ["Scheduled", "Pulled", "Created", "Started"]


@pytest.mark.parametrize(
    ("policy", "code", "phase", "shown"),
    [
        ("Never", 0, "Succeeded", "Completed"),
        ("Never", 3, "Failed", "Error"),
        ("OnFailure", 0, "Succeeded", "Completed"),
    ],
)
def test_a_pod_that_runs_once_ends(
    any_kubectl: Any, pods: Any, about: Any, policy: str, code: int, phase: str, shown: str
) -> None:
    pods.create("once", f"exit {code}", restartPolicy=policy)
    pod = pods.over("once")
    ended = about.state(pod)["terminated"]
    assert pod["status"]["phase"] == phase
    assert (ended["exitCode"], ended["reason"]) == (code, shown)
    assert about.status(pod)["restartCount"] == 0
    assert about.condition(pod, "Ready") == "False"
    assert row(any_kubectl, "once")["STATUS"] == shown


@pytest.mark.parametrize(("policy", "code"), [("Always", 0), ("Always", 4), ("OnFailure", 4)])
def test_a_container_that_ends_again_and_again_backs_off(
    any_kubectl: Any, pods: Any, about: Any, policy: str, code: int
) -> None:
    pods.create("crash", f"exit {code}", restartPolicy=policy)
    pod = pods.when("crash", lambda pod: "CrashLoopBackOff" in str(about.state(pod)))
    main = about.status(pod)
    assert main["restartCount"] == 1
    assert main["lastState"]["terminated"]["exitCode"] == code
    uid = pod["metadata"]["uid"]
    assert main["state"]["waiting"]["message"] == (
        f"back-off 10s restarting failed container=main pod=crash_{pods.namespace}({uid})"
    )
    assert pod["status"]["phase"] == "Running"
    assert row(any_kubectl, "crash")["STATUS"] == "CrashLoopBackOff"
    assert pods.events("crash", "BackOff")


def test_a_signal_is_an_exit_code(pods: Any, about: Any) -> None:
    pods.create("killed", "kill -SEGV $$$$", restartPolicy="Never", shareProcessNamespace=True)
    ended = about.state(pods.over("killed"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (139, "Error")


def test_a_program_that_is_not_there_says_so(pods: Any, about: Any) -> None:
    pods.create("none", container={"command": ["/no/such/program"]}, restartPolicy="Never")
    pod = pods.over("none")
    ended = about.state(pod)["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/no/such/program" in ended["message"]


# Messages of the last moment.


def test_a_termination_message_comes_from_the_file_or_the_log(pods: Any, about: Any) -> None:
    container = {"terminationMessagePath": "/run/last", "terminationMessagePolicy": "File"}
    pods.create(
        "file", "echo log; echo words > /run/last", restartPolicy="Never", container=container
    )
    fallback = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    pods.create("log", "echo from the log; exit 1", restartPolicy="Never", container=fallback)
    pods.create("well", "echo from the log", restartPolicy="Never", container=fallback)
    assert about.state(pods.over("file"))["terminated"]["message"] == "words\n"
    assert about.state(pods.over("log"))["terminated"]["message"] == "from the log\n"
    assert "message" not in about.state(pods.over("well"))["terminated"]


# Init containers and sidecars.


def init(name: str, script: str, **more: Any) -> Json:
    return {"name": name, "image": "host", "command": ["sh", "-c", script], **more}


TRACES = [{"name": "shared", "emptyDir": {}}]
SHARED = [{"name": "shared", "mountPath": "/shared"}]


def test_init_containers_run_one_after_the_other(pods: Any, about: Any) -> None:
    steps = [init(f"step{i}", f"echo {i} >> /shared/f", volumeMounts=SHARED) for i in range(3)]
    said = pods.says(
        "steps",
        "cat /shared/f",
        initContainers=steps,
        container={"volumeMounts": SHARED},
        volumes=TRACES,
    )
    assert said.split() == ["0", "1", "2"]
    pod = pods.get("steps")
    assert about.condition(pod, "Initialized") == "True"
    assert about.state(pod, "step2")["terminated"]["reason"] == "Completed"


def test_a_failed_init_container_ends_a_pod_that_runs_once(
    any_kubectl: Any, pods: Any, about: Any
) -> None:
    pods.create("failed", "true", restartPolicy="Never", initContainers=[init("first", "exit 2")])
    pod = pods.over("failed")
    assert pod["status"]["phase"] == "Failed"
    assert about.state(pod)["waiting"]["reason"] == "PodInitializing"
    assert row(any_kubectl, "failed")["STATUS"] == "Init:Error"


def test_a_failed_init_container_holds_up_the_others(any_kubectl: Any, pods: Any) -> None:
    pods.create("held", initContainers=[init("first", "exit 2"), init("second", "true")])
    pods.when("held", lambda pod: "CrashLoopBackOff" in str(pod["status"]))
    assert row(any_kubectl, "held")["STATUS"] == "Init:CrashLoopBackOff"
    pod = pods.get("held")
    assert pod["status"]["phase"] == "Pending"


def test_a_sidecar_runs_beside_and_ends_after(pods: Any, about: Any, tmp_path: Any) -> None:
    told = tmp_path / "told"
    told.touch(mode=0o666)
    volume = {"name": "told", "hostPath": {"path": str(told)}}
    mounts = [{"name": "told", "mountPath": "/told"}]
    script = "trap 'echo sidecar ends >> /told; exit 0' TERM; while :; do sleep 0.1; done"
    side = init("side", script, restartPolicy="Always", volumeMounts=mounts)
    pods.create(
        "beside",
        "sleep 0.3; echo main ends >> /told",
        restartPolicy="Never",
        terminationGracePeriodSeconds=10,
        initContainers=[side],
        volumes=[volume],
        container={"volumeMounts": mounts},
    )
    pod = pods.over("beside")
    assert pod["status"]["phase"] == "Succeeded"
    assert told.read_text().splitlines() == ["main ends", "sidecar ends"]
    assert about.state(pod, "side")["terminated"]["exitCode"] == 0


# Probes.


def exec_probe(script: str, **more: Any) -> Json:
    return {"exec": {"command": ["sh", "-c", script]}, **QUICK, **more}


SERVE = "mkdir -p /srv/www; cd /srv/www; echo ok > health; exec python3 -m http.server 8000"


@pytest.mark.parametrize(
    "probe",
    [
        {"httpGet": {"path": "/health", "port": 8000}},
        {"tcpSocket": {"port": 8000}},
        {"exec": {"command": ["test", "-e", "/srv/www/health"]}},
    ],
    ids=["http", "tcp", "exec"],
)
def test_a_container_is_ready_when_its_probe_says_so(pods: Any, about: Any, probe: Json) -> None:
    container = {"readinessProbe": {**probe, "periodSeconds": 1}}
    pods.create("probed", f"sleep 1; {SERVE}", container=container)
    pod = pods.when("probed", lambda pod: "running" in about.state(pod))
    assert about.condition(pod, "Ready") == "False"
    assert about.status(pod)["ready"] is False
    assert about.status(pods.ready("probed"))["ready"] is True


def test_an_http_probe_reads_the_status(pods: Any, about: Any) -> None:
    look = {"httpGet": {"path": "/none", "port": 8000}, "periodSeconds": 1}
    pods.create("sick", SERVE, container={"livenessProbe": look})
    pods.when("sick", lambda pod: about.status(pod).get("restartCount", 0) >= 1)
    told = pods.events("sick", "Unhealthy")
    assert "Liveness probe failed: HTTP probe failed with statuscode: 404" in told


def test_a_failed_liveness_probe_restarts_the_container(pods: Any, about: Any) -> None:
    pods.create("alive", container={"livenessProbe": exec_probe("echo gone >&2; exit 1")})
    pod = pods.when("alive", lambda pod: about.status(pod).get("restartCount", 0) >= 1)
    assert about.status(pod)["lastState"]["terminated"]["exitCode"] == 137
    assert "Liveness probe failed: gone\n" in pods.events("alive", "Unhealthy")
    killing = "Container main failed liveness probe, will be restarted"
    assert killing in pods.events("alive", "Killing")


def test_a_startup_probe_holds_back_the_others(pods: Any, about: Any) -> None:
    container = {
        "startupProbe": exec_probe("test -e /tmp/started", failureThreshold=30),
        "livenessProbe": exec_probe("test -e /tmp/started"),
        "readinessProbe": exec_probe("true"),
    }
    pods.create("slow", "sleep 2.5; touch /tmp/started; exec sleep 1000", container=container)
    pod = pods.when("slow", lambda pod: "running" in about.state(pod))
    assert about.status(pod)["started"] is False
    pod = pods.ready("slow")
    assert about.status(pod)["started"] is True
    assert about.status(pod)["restartCount"] == 0


def test_readiness_is_taken_back(pods: Any, about: Any) -> None:
    container = {"readinessProbe": exec_probe("test ! -e /tmp/busy")}
    pods.create("coming", "sleep 2; touch /tmp/busy; exec sleep 1000", container=container)
    pods.ready("coming")
    pod = pods.when("coming", lambda pod: about.condition(pod, "Ready") == "False")
    assert about.status(pod)["restartCount"] == 0


def test_a_readiness_gate_is_waited_for(any_kubectl: Any, pods: Any, about: Any) -> None:
    gate = "example.com/open"
    pods.create("gated", readinessGates=[{"conditionType": gate}])
    pods.when("gated", lambda pod: about.condition(pod, "ContainersReady") == "True")
    assert about.condition(pods.get("gated"), "Ready") == "False"
    opened = {"status": {"conditions": [{"type": gate, "status": "True"}]}}
    path = f"{pods.path}/gated/status"
    pods.api("PATCH", path, opened, Content_Type="application/strategic-merge-patch+json")
    pods.ready("gated")
    assert row(any_kubectl, "gated")["READY"] == "1/1"


# Hooks.


def test_hooks_run_around_a_container(pods: Any, tmp_path: Any) -> None:
    told = tmp_path / "told"
    told.touch(mode=0o666)
    start, stop = (
        {"exec": {"command": ["sh", "-c", f"echo {word} >> /told"]}} for word in ("post", "pre")
    )
    pods.create(
        "hooked",
        terminationGracePeriodSeconds=5,
        volumes=[{"name": "told", "hostPath": {"path": str(told)}}],
        container={
            "volumeMounts": [{"name": "told", "mountPath": "/told"}],
            "lifecycle": {"postStart": start, "preStop": stop},
            "command": [
                "sh",
                "-c",
                "trap 'echo term >> /told; exit 0' TERM; while :; do sleep 0.1; done",
            ],
        },
    )
    pods.ready("hooked")
    pods.delete("hooked")
    pods.gone("hooked")
    assert told.read_text().split() == ["post", "pre", "term"]


def test_a_failed_post_start_hook_ends_the_container(pods: Any, about: Any) -> None:
    hook = {"postStart": {"exec": {"command": ["false"]}}}
    pods.create("unhooked", container={"lifecycle": hook})
    pods.when("unhooked", lambda pod: about.status(pod).get("restartCount", 0) >= 1)
    assert pods.events("unhooked", "FailedPostStartHook")


# The end.


def test_a_deleted_pod_may_say_goodbye(pods: Any, eventually: Any) -> None:
    pods.create(
        "polite",
        "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.1; done",
        terminationGracePeriodSeconds=30,
    )
    pods.ready("polite")
    pods.delete("polite")
    assert pods.get("polite")["metadata"]["deletionGracePeriodSeconds"] == 30
    pods.gone("polite", within=5)


def test_who_does_not_listen_is_killed_after_the_grace_period(pods: Any) -> None:
    pods.create("deaf", "trap '' TERM; while :; do sleep 0.1; done")
    pods.ready("deaf")
    pods.delete("deaf", gracePeriodSeconds=2)
    pods.gone("deaf", within=6)


@pytest.mark.usefixtures("full_level")
def test_a_pod_deleted_by_force_is_really_gone(pods: Any, groups: Any, eventually: Any) -> None:
    pods.create(
        "forced", "trap '' TERM; while :; do sleep 0.1; done", terminationGracePeriodSeconds=500
    )
    group = groups.of(pods.ready("forced"))
    pods.delete("forced", gracePeriodSeconds=0)
    pods.gone("forced", within=1)
    eventually(lambda: not group.exists(), 6)


def test_a_pod_may_be_active_for_so_long(pods: Any, about: Any) -> None:
    pods.create("short", activeDeadlineSeconds=1)
    pod = pods.over("short")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "DeadlineExceeded")
    assert pods.events("short", "DeadlineExceeded")
    assert about.state(pod)["terminated"]["exitCode"] == 137


def test_an_ephemeral_container_joins_a_running_pod(
    any_kubectl: Any, pods: Any, about: Any, eventually: Any
) -> None:
    pods.create("target")
    pods.ready("target")
    any_kubectl(
        "debug",
        "target",
        "--image=host",
        "--target=main",
        "--container=looker",
        "--",
        "sh",
        "-c",
        "tr '\\0' ' ' < /proc/1/cmdline; echo; exec sleep 1000",
    )
    pods.when("target", lambda pod: "running" in about.state(pod, "looker"))
    eventually(lambda: any_kubectl.says("logs target -c looker").startswith("sleep 1000"))
    assert pods.get("target")["status"]["phase"] == "Running"
