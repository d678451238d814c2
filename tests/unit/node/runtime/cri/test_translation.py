from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kedge.deviceplugin import wire
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.cri import translation
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerDevice,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    PidMode,
    RunState,
    RuntimeFeatures,
    SandboxConfig,
)
from kedge.supervisor.rootfs.proc_sys import MASKED, READ_ONLY

SANDBOX = SandboxConfig(
    namespace="default",
    name="web",
    uid="u",
    attempt=2,
    hostname="web",
    log_directory="/logs",
    cgroup_parent="/kedge/podu",
    labels={"app": "web"},
    annotations={"note": "kept"},
    sysctls={"net.ipv4.ping_group_range": "0 1"},
)


def container(**more: Any) -> m.CriContainerConfig:
    spec = ContainerConfig(name="main", image="sha256:1", log_path="main/0.log", **more)
    record = translation.container_record(spec, "s", SANDBOX)
    return translation.container_config(spec, SANDBOX, spec.mounts, record, "n")


def security(**more: Any) -> m.CriContainerSecurity:
    linux = container(security=ContainerSecurity(**more)).linux
    assert linux is not None
    assert linux.security_context is not None
    return linux.security_context


def test_a_sandbox_comes_back_as_it_was_asked_for() -> None:
    sent = translation.sandbox_config(SANDBOX, "n")
    assert sent.labels == {
        "dev.kedge.node": "n",
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.pod.uid": "u",
    }
    assert wire.decode(m.CriSandboxConfig, wire.encode(sent)) == sent
    listed = m.CriSandbox(id="s", state=0, created_at=7, annotations=sent.annotations)
    assert translation.sandbox_spec(listed) == SANDBOX
    seen = translation.pod_sandbox(listed, "10.0.0.2")
    assert (seen.id, seen.uid, seen.attempt, seen.ready) == ("s", "u", 2, True)
    assert (seen.labels, seen.annotations) == ({"app": "web"}, {"note": "kept"})
    assert seen.ips == ("10.0.0.2",)
    stopped = msgspec.structs.replace(listed, state=1)
    assert not translation.pod_sandbox(stopped, "").ready


@pytest.mark.parametrize(
    ("spec", "namespaces"),
    [
        ({}, (m.POD, m.CONTAINER, m.POD)),
        ({"shared_pid": True}, (m.POD, m.POD, m.POD)),
        ({"host_network": True, "host_pid": True, "host_ipc": True}, (m.NODE, m.NODE, m.NODE)),
    ],
)
def test_a_sandbox_has_the_namespaces_of_its_pod(
    spec: dict[str, bool], namespaces: tuple[int, int, int]
) -> None:
    linux = translation.sandbox_config(msgspec.structs.replace(SANDBOX, **spec), "n").linux
    assert linux is not None
    assert linux.security_context is not None
    options = linux.security_context.namespace_options
    assert options is not None
    assert (options.network, options.pid, options.ipc) == namespaces


def test_a_sandbox_with_users_of_its_own_maps_all_its_ids() -> None:
    owner = replace(SANDBOX, first_id=131_072)
    ids = [m.CriIdMapping(host_id=131_072, container_id=0, length=65_536)]
    expected = m.CriUserNamespace(mode=m.POD, uids=ids, gids=ids)
    linux = translation.sandbox_config(owner, "n").linux
    assert linux is not None
    assert linux.security_context is not None
    options = linux.security_context.namespace_options
    assert options is not None
    assert options.userns_options == expected

    spec = ContainerConfig(
        name="main", image="i", mounts=[ContainerMount(container_path="/a", host_path="/b")]
    )
    record = translation.container_record(spec, "s", owner)
    sent = translation.container_config(spec, owner, spec.mounts, record, "n")
    assert [(each.uid_mappings, each.gid_mappings) for each in sent.mounts] == [(ids, ids)]
    assert sent.linux is not None
    assert sent.linux.security_context is not None
    assert sent.linux.security_context.namespace_options is not None
    assert sent.linux.security_context.namespace_options.userns_options == expected
    usual = security().namespace_options
    assert usual is not None
    assert usual.userns_options is None


def test_a_container_has_variables_mounts_and_devices() -> None:
    sent = container(
        env=[("A", "b"), ("RAW", "\udcff")],
        mounts=[
            ContainerMount(
                container_path="/a", host_path="/b", read_only=True, propagation="HostToContainer"
            )
        ],
        devices=[ContainerDevice(container_path="/dev/a", host_path="/dev/b", permissions="rw")],
    )
    assert [(each.key, each.value) for each in sent.envs] == [("A", b"b"), ("RAW", b"\xff")]
    assert sent.mounts == [
        m.CriMount(container_path="/a", host_path="/b", readonly=True, propagation=1)
    ]
    assert sent.devices == [
        m.CriDevice(container_path="/dev/a", host_path="/dev/b", permissions="rw")
    ]
    assert "b'b'" not in repr(sent)
    assert wire.decode(m.CriContainerConfig, wire.encode(sent)).envs == sent.envs


def test_limits_that_are_not_set_stay_off_the_wire() -> None:
    assert wire.encode(translation.resources(ContainerLimits())) == b""
    limits = ContainerLimits(
        cpu_shares=512, cpu_quota=-1, memory_limit=1 << 20, hugepages={"2MB": 4}, oom_score_adj=-997
    )
    assert translation.resources(limits) == m.CriResources(
        cpu_period=100_000,
        cpu_quota=-1,
        cpu_shares=512,
        memory_limit_in_bytes=1 << 20,
        oom_score_adj=-997,
        hugepage_limits=[m.CriHugePages(page_size="2MB", limit=4)],
    )
    # CRI-O refuses -1 for memory.
    assert wire.encode(translation.resources(ContainerLimits(memory_limit=-1))) == b""
    decoded = wire.decode(m.CriResources, wire.encode(translation.resources(limits)))
    assert (decoded.cpu_quota, decoded.oom_score_adj) == (-1, -997)


@pytest.mark.parametrize(
    ("given", "number", "name"),
    [
        ({}, None, ""),
        ({"username": "web:web"}, None, ""),
        ({"user": 0}, 0, ""),
        ({"user": 5, "group": 6}, 5, ""),
        ({"group": 6}, 0, ""),
        ({"group": 6, "username": "1000:2"}, 1000, ""),
        ({"group": 6, "username": "web"}, None, "web"),
    ],
)
def test_a_group_never_comes_without_a_user(
    given: dict[str, Any], number: int | None, name: str
) -> None:
    sent = security(**given)
    assert sent.run_as_user == (None if number is None else m.CriInt64(value=number))
    assert sent.run_as_username == name


def test_paths_are_masked_unless_the_container_is_privileged() -> None:
    assert security().masked_paths == MASKED
    assert security().readonly_paths == READ_ONLY
    assert security(privileged=True).masked_paths == ()


@pytest.mark.parametrize(
    ("profile", "type_", "path"),
    [("RuntimeDefault", 0, ""), ("Unconfined", 1, ""), ("/profiles/a.json", 2, "/profiles/a.json")],
)
def test_a_seccomp_profile_is_named(profile: str, type_: int, path: str) -> None:
    assert security(seccomp=profile).seccomp == m.CriSeccomp(profile_type=type_, localhost_ref=path)


def test_an_ephemeral_container_sees_its_target() -> None:
    options = security(pid=PidMode.TARGET, pid_target="c").namespace_options
    assert options == m.CriNamespaces(pid=m.TARGET, target_id="c")


def test_what_cri_cannot_carry_is_told() -> None:
    spec = ContainerConfig(
        name="main",
        image="i",
        stop_signal="SIGINT",
        security=ContainerSecurity(merge_image_groups=False),
        mounts=[ContainerMount(container_path="/a", host_path="/a", recursive_read_only=True)],
    )
    assert translation.shortfalls(spec) == [
        "the container runtime ignores the stop signal SIGINT",
        "the container runtime adds the groups of the image: policy Strict is ignored",
        "the container runtime mounts /a read-only, but not what is below",
    ]
    can = RuntimeFeatures(strict_groups=True, recursive_read_only=True, stop_signals=True)
    assert translation.shortfalls(spec, can) == []
    record = translation.container_record(spec, "s", SANDBOX, features=can)
    sent = translation.container_config(spec, SANDBOX, spec.mounts, record, "n", can)
    assert sent.stop_signal == 10
    assert [each.recursive_read_only for each in sent.mounts] == [True]
    # A runtime would refuse what it knows and cannot do.
    sent = translation.container_config(spec, SANDBOX, spec.mounts, record, "n")
    assert [each.recursive_read_only for each in sent.mounts] == [False]


def test_groups_of_the_image_are_left_away_on_request() -> None:
    assert security().supplemental_groups_policy == m.MERGE
    assert security(merge_image_groups=False).supplemental_groups_policy == m.STRICT


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("", 0),
        ("SIGABRT", 1),
        ("SIGTERM", 23),
        ("SIGRTMIN", 35),
        ("SIGRTMIN+15", 50),
        ("SIGRTMAX-14", 51),
        ("SIGRTMAX", 65),
    ],
)
def test_signals_have_the_numbers_of_cri(name: str, number: int) -> None:
    assert container(stop_signal=name).stop_signal == number


@pytest.mark.parametrize(
    ("state", "code", "reason", "expected"),
    [
        (m.CREATED, 0, "", (RunState.CREATED, "")),
        (m.RUNNING, 0, "", (RunState.RUNNING, "")),
        (m.EXITED, 0, "", (RunState.EXITED, "Completed")),
        (m.EXITED, 3, "", (RunState.EXITED, "Error")),
        (m.EXITED, 137, "OOMKilled", (RunState.EXITED, "OOMKilled")),
        (m.EXITED, 255, "Unknown", (RunState.EXITED, "ContainerStatusUnknown")),
        (3, 0, "", (RunState.EXITED, "ContainerStatusUnknown")),
    ],
)
def test_states_have_the_words_of_the_kubelet(
    state: int, code: int, reason: str, expected: tuple[RunState, str]
) -> None:
    annotations = container().annotations
    status = m.CriContainerStatus(
        id="c",
        metadata=m.CriContainerMetadata(name="main", attempt=1),
        state=state,
        exit_code=code,
        reason=reason,
        annotations=annotations,
    )
    record = translation.record_of(annotations)
    seen = translation.runtime_container(
        status, record, pid=42, cgroup="/kedge/podu/c", runtime="containerd"
    )
    assert (seen.state, seen.reason) == expected
    assert (seen.sandbox, seen.name, seen.attempt) == ("s", "main", 1)
    assert (seen.log_path, seen.cgroup) == ("/logs/main/0.log", "/kedge/podu/c")
    assert seen.pid == (42 if state == m.RUNNING else 0)
    assert seen.url == "containerd://c"


def test_a_container_without_limits_has_no_control_group() -> None:
    record = translation.container_record(
        ContainerConfig(name="main", image="i"), "s", replace(SANDBOX, cgroup_parent="")
    )
    seen = translation.runtime_container(
        m.CriContainerStatus(id="c"), record, pid=0, cgroup="/c", runtime="cri-o"
    )
    assert seen.cgroup == ""


def test_times_are_rounded_up() -> None:
    assert [translation.whole_seconds(each) for each in (0, 0.2, 1.0)] == [0, 1, 1]


def test_verbose_information_has_pid_namespace_and_control_group() -> None:
    linux = {
        "cgroupsPath": "/kedge/podu/crio-c",
        "namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/a"}],
    }
    info = {"info": msgspec.json.encode({"pid": 7, "runtimeSpec": {"linux": linux}}).decode()}
    assert facts_of(info) == (7, "/run/netns/a", "/kedge/podu/crio-c")
    for nothing in ({}, {"info": "{}"}, {"info": "no JSON"}, {"info": "[]"}):
        assert facts_of(nothing) == (0, "", "")
    by_systemd = {"info": '{"runtimeSpec":{"linux":{"cgroupsPath":"pod.slice:crio:c"}}}'}
    assert translation.control_group(by_systemd) == ""


def facts_of(info: dict[str, str]) -> tuple[int, str, str]:
    return (
        translation.process_id(info),
        translation.network_namespace(info),
        translation.control_group(info),
    )


def test_a_command_that_took_too_long_may_have_an_outcome() -> None:
    # The answer of CRI-O 1.36.3.
    answer = b"\x12\x11command timed out\x18" + 9 * b"\xff" + b"\x01"
    late = wire.decode(m.CriExecSyncResponse, answer)
    assert (late.exit_code, translation.has_timed_out(late)) == (-1, True)
    for other in (
        m.CriExecSyncResponse(exit_code=1, stderr=b"command timed out"),
        m.CriExecSyncResponse(exit_code=-1, stderr=b"else"),
    ):
        assert not translation.has_timed_out(other)


def test_a_score_that_the_machine_refuses_is_raised() -> None:
    limits = ContainerLimits(memory_limit=1, oom_score_adj=-997)
    spec = ContainerConfig(name="main", image="i", resources=limits)
    assert translation.with_oom_score(spec, -1000) == (spec, [])
    raised, unmet = translation.with_oom_score(spec, 0)
    assert raised.resources == ContainerLimits(memory_limit=1)
    assert unmet == ["oom_score_adj stays 0: this machine does not let it be -997"]
    record = translation.container_record(raised, "s", SANDBOX, unmet=unmet)
    assert record.shortfalls == unmet


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"image_name": "app"}, "app"),
        ({"image_name": "app", "image_reference": "docker.io/team/app:1"}, "docker.io/team/app:1"),
    ],
)
def test_an_image_is_sent_with_its_name(names: dict[str, str], expected: str) -> None:
    assert container(**names).image == m.CriImageSpec(
        image="sha256:1", user_specified_image=expected
    )
