"""What a container must not be able to see or do."""

import os
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]

pytestmark = pytest.mark.usefixtures("full_level")


def secure(**context: Any) -> Json:
    return {"container": {"securityContext": context}}


def test_containers_do_not_share_files(pods: Any) -> None:
    pods.create("writer", "echo secret > /tmp/mine; echo secret > /mine; exec sleep 1000")
    pods.ready("writer")
    assert pods.says("reader", "cat /tmp/mine /mine 2>&1 | grep -c secret || true") == "0"
    assert not Path("/mine").exists()


def test_what_a_container_writes_stays_in_it(pods: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.write_text("before")
    script = f"echo after > {mark}; cat {mark}; touch /etc/kedge-was-here"
    assert pods.says("writer", script) == "after"
    assert mark.read_text() == "before"
    assert not Path("/etc/kedge-was-here").exists()


def test_the_state_directory_is_hidden(pods: Any, cluster: Any) -> None:
    """Not only its contents: the tokens, keys and pods of a cluster are nobody's business."""
    state = cluster.home / "state"
    if not state.exists():
        pytest.skip("the cluster is somebody else's: its state directory is not known")
    said = pods.says("nosy", f"ls -A {state}; find {state} -type f | wc -l")
    assert said.splitlines()[-1] == "0"
    # Nor by a mount of another pod's token that came with the view of the machine's files.
    mounts = pods.says("mounts", "cut -d' ' -f2 /proc/self/mounts")
    assert [line for line in mounts.splitlines() if line.startswith(f"{state}/")] == []


def test_nobody_finds_a_way_in_as_somebody_else(pods: Any, cluster: Any) -> None:
    assert pods.says("thief", f"cat {cluster.kubeconfig}; id -u") == "0"


def test_only_its_own_token_is_in_a_container(pods: Any) -> None:
    assert pods.says("own", "find /run/ -name token -type l").splitlines() == [
        "/run/secrets/kubernetes.io/serviceaccount/token"
    ]
    without = pods.says(
        "without",
        "ls /var/run/secrets/kubernetes.io 2>/dev/null | wc -l",
        automountServiceAccountToken=False,
    )
    assert without == "0"


def test_processes_are_not_seen_and_not_reached(pods: Any) -> None:
    pods.create("other", "exec sleep 31415")
    pods.ready("other")
    said = pods.says("looker", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done")
    assert len(said.splitlines()) < 5
    assert not [line for line in said.splitlines() if line.startswith("sleep 31415")]
    assert pods.says("signal", f"kill -0 {os.getpid()} 2>&1 || echo refused").endswith("refused")


def test_a_shared_process_namespace_is_the_pods_own(pods: Any) -> None:
    other = {"name": "other", "image": "host", "command": ["sleep", "31415"]}
    main = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", "sleep 0.5; ps ax > /dev/termination-log"],
    }
    pods.create("both", restartPolicy="Never", shareProcessNamespace=True, containers=[main, other])
    pod = pods.when(
        "both",
        lambda pod: (
            "terminated" in str(pod["status"]["containerStatuses"])
            if "containerStatuses" in pod["status"]
            else False
        ),
    )
    said = next(s for s in pod["status"]["containerStatuses"] if s["name"] == "main")
    assert "sleep 31415" in said["state"]["terminated"]["message"]


def test_other_users(pods: Any) -> None:
    context = {"runAsUser": 1234, "runAsGroup": 2345}
    spec = {"securityContext": {"supplementalGroups": [3456], "fsGroup": 4567}}
    said = pods.says("user", "id -u; id -g; id -G", **secure(**context), **spec)
    uid, gid, groups = said.splitlines()
    assert (uid, gid) == ("1234", "2345")
    assert set(groups.split()) == {"2345", "3456", "4567"}


def test_root_may_be_forbidden(pods: Any, about: Any) -> None:
    pods.create("root", **secure(runAsNonRoot=True))
    pod = pods.when(
        "root",
        lambda pod: "waiting" in about.state(pod) and about.state(pod)["waiting"].get("message"),
    )
    waiting = about.state(pod)["waiting"]
    assert waiting["reason"] == "CreateContainerConfigError"
    assert waiting["message"].startswith("container has runAsNonRoot and image will run as root")


def capabilities(pods: Any, name: str, **context: Any) -> int:
    return int(
        pods.says(name, "awk '/CapEff/ {print $2}' /proc/self/status", **secure(**context)), 16
    )


NET_RAW, SYS_ADMIN, CHOWN = 1 << 13, 1 << 21, 1 << 0


def test_capabilities(pods: Any) -> None:
    plain = capabilities(pods, "plain")
    assert plain & CHOWN
    assert not plain & SYS_ADMIN
    none = capabilities(pods, "none", capabilities={"drop": ["ALL"]})
    assert none == 0
    some = capabilities(pods, "some", capabilities={"drop": ["ALL"], "add": ["NET_RAW"]})
    assert some == NET_RAW
    assert capabilities(pods, "user", runAsUser=1000) == 0
    assert capabilities(pods, "all", privileged=True) & SYS_ADMIN


@pytest.mark.parametrize(
    "deed",
    [
        "mount -t tmpfs none /mnt",
        "unshare --user true",
        "unshare --mount true",
        "umount /proc",
        "mknod /tmp/memory c 1 1 && head -c 1 /tmp/memory",
        "mknod /tmp/kernel c 1 11 && head -c 1 /tmp/kernel",
        "echo 1 > /proc/sys/kernel/panic",
        "echo b > /proc/sysrq-trigger",
        "hostname other",
        "date -s 2000-01-01",
        "cat /proc/kcore > /dev/null && test -s /proc/kcore",
        "mkdir /sys/fs/cgroup/memory/mine || mkdir /sys/fs/cgroup/mine",
    ],
)
def test_what_is_refused(pods: Any, deed: str) -> None:
    assert pods.says("bad", f"if {deed}; then echo done; else echo refused; fi").endswith("refused")


def test_a_seccomp_profile_may_be_waived(pods: Any) -> None:
    mode = "awk '/Seccomp:/ {print $2}' /proc/self/status"
    assert pods.says("default", mode) == "2"
    waived = {"seccompProfile": {"type": "Unconfined"}}
    assert pods.says("waived", mode, **secure(**waived)) == "0"


def test_the_root_file_system_may_be_read_only(pods: Any) -> None:
    script = "touch /file 2>&1 || true; touch /dev/shm/file && echo shm"
    said = pods.says("fixed", script, **secure(readOnlyRootFilesystem=True))
    assert "Read-only file system" in said
    assert said.endswith("shm")


def test_paths_of_the_kernel_are_masked(pods: Any) -> None:
    script = (
        "for p in /proc/kcore /proc/keys /proc/timer_list; do test -e $p && wc -c < $p; done;"
        "ls -A /sys/firmware 2>/dev/null | wc -l"
    )
    assert set(pods.says("masked", script).split()) <= {"0"}
    flags = pods.says(
        "flags", 'awk \'$2 == "/sys" || $2 == "/proc/sys" {print $4}\' /proc/self/mounts'
    )
    assert all(line.split(",")[0] == "ro" for line in flags.splitlines())
    assert len(flags.splitlines()) == 2


def test_privileges_do_not_grow(pods: Any) -> None:
    told = "awk '/NoNewPrivs/ {print $2}' /proc/self/status"
    assert pods.says("may", told) == "0"
    assert pods.says("may-not", told, **secure(allowPrivilegeEscalation=False)) == "1"


def test_descriptors_of_the_supervisor_are_not_inherited(pods: Any) -> None:
    # Standard input is the null device, 1:3, of a mount that has no name.
    name = 'test "$(stat -Lc %t:%T $f)" = 1:3 || readlink $f'
    said = pods.says("open", f"for f in /proc/$$$$/fd/*; do {name}; done")
    names = [
        line for line in said.splitlines() if not line.startswith(("pipe:", "/dev/termination-log"))
    ]
    assert names == []


def test_the_variables_of_the_agent_are_not_inherited(pods: Any) -> None:
    said = pods.says("environment", "env | cut -d= -f1 | sort | tr '\\n' ' '")
    allowed = ("KUBERNETES_", "PATH", "HOSTNAME", "HOME", "PWD", "_", "OLDPWD", "SHLVL")
    assert [name for name in said.split() if not name.startswith(allowed)] == []
