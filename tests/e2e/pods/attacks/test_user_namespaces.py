"""Attacks on the machine by root in a pod with `hostUsers: false`."""

import os
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
OWN: Json = {"hostUsers": False}

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "KEDGE_E2E_KUBECONFIG" in os.environ,
    reason="needs the level full, and a cluster on this machine",
)

CONTEXTS: list[Json] = [
    {"procMount": "Unmasked"},
    {"procMount": "Unmasked", "capabilities": {"add": ["ALL"]}},
    {"privileged": True},
    {"privileged": True, "procMount": "Unmasked"},
]


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_root_with_all_capabilities_cannot_change_the_machines_settings(
    pods: Any, context: Json
) -> None:
    before = CORE_PATTERN.read_text()
    # Each file gets what it holds already, so that nothing changes if the attack works.
    rewrite = (
        "for file in /proc/sys/kernel/core_pattern /sys/kernel/uevent_helper; do"
        ' cat "$file" > /tmp/same && cat /tmp/same > "$file" && echo "written $file"; done;'
    )
    script = f"{rewrite} mount -o remount,rw /proc; mount -o remount,rw /sys; {rewrite} echo done"
    said = pods.says("settings", script, container={"securityContext": context}, **OWN)
    assert said.endswith("done")
    assert "written" not in said
    assert CORE_PATTERN.read_text() == before


def test_root_is_not_root_on_the_machine(pods: Any) -> None:
    seconds = 10**6 + os.getpid()
    context = {"securityContext": {"privileged": True}}
    pods.create("sleeper", f"exec sleep {seconds}", container=context, **OWN)
    pods.ready("sleeper")
    wanted = f"sleep\0{seconds}\0".encode()
    listed = [each for each in Path("/proc").iterdir() if each.name.isdigit()]
    (found,) = (each for each in listed if cmdline(each) == wanted)
    assert int((found / "uid_map").read_text().split()[1]) >= 65_536
    assert found.stat().st_uid >= 65_536
    groups = next(x for x in (found / "status").read_text().splitlines() if "Groups:" in x)
    assert all(int(group) >= 65_536 for group in groups.split()[1:])


def cmdline(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_privileged_pod_opens_no_disk_and_makes_no_node(pods: Any) -> None:
    script = (
        'for each in /dev/*; do [ -b "$each" ] && head -c1 "$each" > /dev/null && echo "got $each";'
        " done; mknod /tmp/memory c 1 1 && echo got mknod; mount -t debugfs x /mnt && echo got it;"
        " head -c1 /proc/kcore > /dev/null && echo got kcore; dmesg > /dev/null && echo got dmesg;"
        " echo done"
    )
    context = {"privileged": True, "procMount": "Unmasked"}
    said = pods.says("devices", script, container={"securityContext": context}, **OWN)
    assert said.endswith("done")
    assert [line for line in said.splitlines() if line.startswith("got")] == []


def test_a_setuid_program_that_it_leaves_in_its_root_is_not_roots(pods: Any, cluster: Any) -> None:
    script = "cp /bin/sh /shell && chmod 4755 /shell && touch /done; exec sleep 1000"
    probe = {"exec": {"command": ["test", "-e", "/done"]}, "periodSeconds": 1}
    pods.create("setuid", script, container={"readinessProbe": probe}, **OWN)
    status = pods.ready("setuid")["status"]["containerStatuses"][0]
    container = status["containerID"].removeprefix("kedge://")
    runtime = Path(cluster.home) / "state/nodes/node-1/runtime/containers"
    left = (runtime / container / "upper/shell").stat()
    assert left.st_mode & 0o7777 == 0o4755
    assert left.st_uid >= 65_536


def test_a_shared_pid_namespace_does_not_lead_out(pods: Any) -> None:
    """The first process of such a namespace is the supervisor's: it must have nothing."""
    script = "ls /proc/1/root/proc /proc/1/root/etc /proc/1/cwd/; grep CapBnd /proc/1/status"
    context = {"capabilities": {"add": ["SYS_PTRACE"]}}
    for name, more in (("machine", {}), ("own", OWN)):
        said = pods.says(
            name,
            script + "; echo done",
            shareProcessNamespace=True,
            container={"securityContext": context},
            **more,
        )
        assert "passwd" not in said
        assert "CapBnd:\t0000000000000000" in said


REFUSED: list[tuple[Json, str]] = [
    ({"hostNetwork": True}, "spec.hostNetwork"),
    ({"hostPID": True}, "spec.HostPID"),
    ({"hostIPC": True}, "spec.HostIPC"),
]


@pytest.mark.parametrize(("more", "field"), REFUSED, ids=str)
def test_namespaces_of_the_machine_are_refused_with_it(pods: Any, more: Json, field: str) -> None:
    with pytest.raises(Exception, match=f"{field}: Forbidden: when `hostUsers` is false"):
        pods.create("refused", **OWN, **more)


def test_unmasked_needs_it(pods: Any) -> None:
    context = {"securityContext": {"procMount": "Unmasked"}}
    with pytest.raises(Exception, match="`hostUsers` must be false to use `Unmasked`"):
        pods.create("refused", container=context)


def test_a_volume_that_cannot_be_mapped_keeps_the_pod_from_running(pods: Any) -> None:
    pods.create(
        "kernel",
        volumes=[{"name": "sys", "hostPath": {"path": "/sys/kernel"}}],
        container={"volumeMounts": [{"name": "sys", "mountPath": "/v"}]},
        **OWN,
    )
    pods.when("kernel", lambda _: pods.events("kernel", "Failed"))
    assert "failed to set MOUNT_ATTR_IDMAP" in pods.events("kernel", "Failed")[0]


@pytest.mark.parametrize("profile", [{"type": "RuntimeDefault"}, {"type": "Localhost"}], ids=str)
def test_profiles_of_app_armor_that_cannot_be_enforced_are_refused(
    pods: Any, profile: Json
) -> None:
    if profile["type"] == "Localhost":
        profile = {**profile, "localhostProfile": "mine"}
    pods.create("armed", securityContext={"appArmorProfile": profile})
    pod = pods.over("armed")
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "AppArmor")
    assert "Cannot enforce AppArmor" in pod["status"]["message"]
    assert pods.events("armed", "AppArmor")


def test_a_label_of_selinux_that_has_no_effect_is_told(pods: Any) -> None:
    if Path("/sys/fs/selinux/enforce").exists():
        pytest.skip("this machine has SELinux")
    options = {"seLinuxOptions": {"level": "s0:c1,c2"}}
    pods.says("labelled", "true", securityContext=options)
    (told,) = pods.events("labelled", "NotEnforced")
    assert 'SELinux label ":::s0:c1,c2" has no effect' in told
