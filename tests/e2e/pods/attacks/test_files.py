"""Files that containers leave for the node to read, or to delete."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Json = dict[str, Any]


def reads_file(name: str, script: str) -> Json:
    """A pod whose init container prepares the file that a variable of the other one is read
    from."""
    mounts = [{"name": "v", "mountPath": "/v"}]
    source = {"fileKeyRef": {"volumeName": "v", "path": "vars", "key": "A"}}
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "v", "emptyDir": {}}],
            "initContainers": [
                {
                    "name": "prepare",
                    "image": "host",
                    "command": ["sh", "-c", script],
                    "volumeMounts": mounts,
                }
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "host",
                    "command": ["sleep", "1000"],
                    "env": [{"name": "A", "valueFrom": source}],
                }
            ],
        },
    }


def test_a_fifo_in_place_of_a_file_with_variables(
    pods: Any, about: Any, responds: Callable[[str], None]
) -> None:
    """Each held a thread of the agent for ever; with as many as there are, no pod started."""
    for number in range(10):
        made = reads_file(f"fifo-{number}", "mkfifo /v/vars")
        pods.api.create(pods.path, made)
    for number in range(10):
        refused = pods.when(
            f"fifo-{number}",
            lambda pod: "regular" in about.state(pod).get("waiting", {}).get("message", ""),
        )
        waiting = about.state(refused)["waiting"]
        assert waiting["reason"] == "CreateContainerConfigError"
    pods.api.create(pods.path, reads_file("good", "echo \"A='1'\" > /v/vars"))
    pods.ready("good")
    responds("others")


def test_a_link_in_place_of_a_file_with_variables(pods: Any, about: Any, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("A='stolen'\n")
    pods.api.create(pods.path, reads_file("link", f"ln -s {tmp_path}/outside /v/vars"))
    pods.when(
        "link",
        lambda pod: "leads out" in about.state(pod).get("waiting", {}).get("message", ""),
    )


NEST = (
    "p=$(printf 'd/%.0s' $(seq 1500));"
    " for top in /root /v; do cd $top; mkdir -p $p; cd $p; mkdir -p $p; done"
)
"""3,000 directories in each other, deeper than Python's stack and than any path."""


@pytest.mark.skipif("KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own")
def test_directories_deeper_than_any_path(
    own_cluster: Any, own_pods: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    """The supervisor tried to delete them again and again, and `kedge down` never ended."""
    cluster = own_cluster.up("--nodes=1")
    pods = own_pods(cluster.api, "default")
    eventually(lambda: cluster.api.exists("/api/v1/namespaces/default/serviceaccounts/default"))
    for name in ("deleted", "left"):
        pods.create(
            name,
            NEST,
            container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
            volumes=[{"name": "v", "emptyDir": {}}],
            restartPolicy="Never",
        )
    for name in ("deleted", "left"):
        assert pods.over(name)["status"]["phase"] == "Succeeded"
    pods.delete("deleted")
    pods.gone("deleted")
    trash = own_cluster.state / "nodes" / "node-1" / "runtime" / "trash"
    eventually(lambda: not any(trash.iterdir()), within=15)
    own_cluster.down()


@pytest.mark.skipif("KEDGE_E2E_KUBECONFIG" in os.environ, reason="the cluster must be our own")
@pytest.mark.skipif(os.geteuid() != 0, reason="to lock a file takes root")
def test_files_that_may_not_be_deleted(
    pods: Any, agent: Any, eventually: Callable[..., Any]
) -> None:
    capable = {"capabilities": {"add": ["LINUX_IMMUTABLE"]}}
    script = "mkdir /v/d && touch /v/d/f /root/f && chattr +i /v/d/f /v/d /root/f"
    pods.create(
        "locks",
        f"{script} || exit 3",
        container={
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            "securityContext": capable,
        },
        volumes=[{"name": "v", "emptyDir": {}}],
        restartPolicy="Never",
    )
    uid = pods.get("locks")["metadata"]["uid"]
    ended = pods.over("locks")
    if ended["status"]["phase"] != "Succeeded":
        pytest.skip("this file system has no such flags")
    pods.delete("locks")
    pods.gone("locks")
    eventually(lambda: not (agent.node / "pods" / uid).exists())
    eventually(lambda: not any((agent.node / "runtime" / "trash").iterdir()))


@pytest.mark.parametrize("path", ["/etc/hosts", "/dev/termination-log", "/etc/resolv.conf"])
def test_small_files_that_grow_count_for_the_limit_of_the_pod(pods: Any, path: str) -> None:
    """CVE-2020-8557: what is mounted in a container is in no volume, and in no layer of it."""
    name = "grows-" + path.rpartition("/")[2].replace(".", "-")
    limited = {"resources": {"limits": {"ephemeral-storage": "10Mi"}}}
    script = f"head -c 20000000 /dev/zero >> {path}; exec sleep 1000"
    pods.create(name, script, container=limited, restartPolicy="Never")
    pod = pods.over(name, 40)
    assert pod["status"]["reason"] == "Evicted"
    assert "ephemeral local storage usage exceeds" in pod["status"]["message"]


LEASE = """
import fcntl, os, signal, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
while True:
    try:
        file = os.open("/etc/hosts", os.O_RDONLY)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        open("/shared/held", "w").close()
        time.sleep(1000)
    except OSError:
        time.sleep(0.05)
"""
"""Makes whoever opens the file wait, until the kernel takes the lease away after 45 s."""


def test_a_lease_on_the_hosts_file_keeps_nobody_waiting(
    pods: Any, about: Any, responds: Callable[[str], None]
) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    holder = {"name": "holder", "image": "host", "command": ["/usr/bin/python3", "-c", LEASE]}
    waits = (
        "until test -e /shared/held; do sleep 0.05; done; test -e /shared/again && exec sleep 99"
    )
    main = {"command": ["sh", "-c", f"{waits}; touch /shared/again; exit 1"]}
    containers = [
        {**holder, "volumeMounts": mounts},
        {"name": "main", "image": "host", "volumeMounts": mounts, **main},
    ]
    pods.create("lease", containers=containers, volumes=[{"name": "shared", "emptyDir": {}}])
    pods.when("lease", lambda pod: about.status(pod).get("restartCount"), 30)
    responds("beside-the-lease")
