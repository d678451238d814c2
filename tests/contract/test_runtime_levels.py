"""Containers without root, and without namespaces: the same runtime at its lower levels."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kedge

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"

PROGRAM = """
import asyncio, json, os, signal, sys
from pathlib import Path
sys.path[:0] = json.loads(sys.argv[1])
from kedge.node.images.image import HOST_IMAGE
from kedge.node.runtime import seccomp
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import *
from kedge.supervisor.kernel import libc

home, jailed = Path(sys.argv[2]), sys.argv[3] == "jailed"
if jailed:
    libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    libc.set_filter(seccomp.default(frozenset({"SYS_CHROOT"})))

class Images:
    def get(self, id_): return HOST_IMAGE
    def hold(self, id_, container): pass
    def release(self, container): pass
    def release_others(self, containers): pass

async def main():
    runtime = await EmbeddedRuntime.open(home / "runtime", Images(), hidden=[home / "secret"])
    sandbox = await runtime.run_sandbox(
        SandboxConfig(namespace="n", name="p", uid="u", hostname="mine", log_directory=str(home))
    )
    async def run(name, script, **more):
        spec = ContainerConfig(
            name=name, image="host", command=["sh", "-c", script], log_path=f"{name}.log", **more
        )
        container = await runtime.create_container(sandbox.id, spec)
        await runtime.start_container(container)
        await (await runtime._connected()).ask("wait", container=container)
        return container
    # Without mounts there is a link on the machine, where other tests must not find it.
    place = f"{home}.mounted" if jailed else "/volume"
    volume = ContainerMount(host_path=str(home / "volume"), container_path=place)
    limits = ContainerLimits(memory_limit=1 << 30, cpu_quota=100_000)
    seen = await run("seen", sys.argv[4], resources=limits, mounts=[volume])
    user = await run("user", "id -u; id -g", security=ContainerSecurity(user=1234, group=5678))
    try:
        there = {"host_path": str(home / "volume"), "part": "link"}
        mount = ContainerMount(container_path=f"{home}.out", **there)
        await run("escape", f"ls {home}.out", mounts=[mount])
        escaped = "started"
    except RuntimeFailure as error:
        escaped = str(error).rpartition(": ")[2]
    ended = await runtime.container(seen)
    spec = ContainerConfig(name="stays", image="host", command=["sleep", "1000"])
    stays = await runtime.create_container(sandbox.id, spec)
    await runtime.start_container(stays)
    done = await runtime.execute(stays, ["sh", "-c", "echo out; exit 3"], 10)
    spec = ContainerConfig(name="hungry", image="host", command=["sleep", "1000"])
    hungry = await runtime.create_container(sandbox.id, spec)
    await runtime.start_container(hungry)
    await runtime.exceed_memory(hungry)
    await (await runtime._connected()).ask("wait", container=hungry)
    killed = await runtime.container(hungry)
    attacked, escapes = await attack(runtime)
    pid = os.pidfd_open((await runtime.container(stays)).pid)
    os.kill(runtime.supervisor, signal.SIGKILL)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pid, gone.set)
    await asyncio.wait_for(gone.wait(), 10)
    asyncio.get_running_loop().remove_reader(pid)
    lost = await runtime.container(stays)
    level = runtime.level
    logs = {
        path.stem: [line.split(" ", 3)[3] for line in path.read_text().splitlines()]
        for path in home.glob("*.log")
    }
    await runtime.remove_sandbox(sandbox.id)
    await runtime.shutdown()
    print(json.dumps({
        "level": level, "exit": ended.exit_code, "shortfalls": list(ended.shortfalls),
        "exec": [done.exit_code, done.stdout.decode()], "lost": [lost.exit_code, lost.reason],
        "killed": [killed.exit_code, killed.reason], "escaped": escaped,
        "left": sorted(os.listdir(home / "runtime" / "containers")),
        "logs": logs, "attacked": attacked, "escapes": escapes,
    }))

async def attack(runtime):
    # A pod that shares processes, a user of its own, and a working directory that becomes a link.
    (home / "volume" / "work").mkdir()
    sandbox = await runtime.run_sandbox(
        SandboxConfig(namespace="n", name="q", uid="v", log_directory=str(home), shared_pid=True)
    )
    spec = ContainerConfig(
        name="attacked", image="host", command=["sleep", "1000"],
        working_dir="/volume/work" if runtime.level != "plain" else str(home / "volume" / "work"),
        mounts=[ContainerMount(
            host_path=str(home / "volume"),
            container_path=f"{home}.mounted" if jailed else "/volume",
        )],
        security=ContainerSecurity(user=1234, group=5678, pid=PidMode.POD),
    )
    container = await runtime.create_container(sandbox.id, spec)
    await runtime.start_container(container)
    said = (await runtime.execute(container, ["sh", "-c", "id -u; cat /proc/1/comm"], 10)).stdout
    (home / "volume" / "work").rmdir()
    escapes = []
    for number in range(3, 24):
        (home / "volume" / "work").symlink_to(f"/proc/self/fd/{number}")
        try:
            done = await runtime.execute(container, ["sh", "-c", "ls -a"], 10)
            if done.exit_code == 0:
                escapes.append(done.stdout.decode())
        except RuntimeFailure:
            pass
        (home / "volume" / "work").unlink()
    await runtime.remove_sandbox(sandbox.id)
    return said.decode().split(), escapes

asyncio.run(main())
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that anybody may reach; the tests' own ones are for their user only."""
    directory = Path(tempfile.mkdtemp(prefix="kedge-levels-"))
    (directory / "secret").mkdir()
    (directory / "volume").mkdir()
    (directory / "volume" / "link").symlink_to("../secret")
    (directory / "secret" / "token").write_text("do not tell")
    for path in (directory, *directory.iterdir(), directory / "secret" / "token"):
        os.chown(path, NOBODY, NOBODY)
    yield directory
    shutil.rmtree(directory)


def interpreter() -> str:
    """A Python that another user may run, and that knows the same packages."""
    # Only who is that user already sees what it may run.
    question = "import os, sys; print(os.access(sys.executable, os.X_OK), sys.version_info[:2])"
    for python in (sys.executable, SYSTEM_PYTHON):
        asked = subprocess.run(
            [*as_nobody(), python, "-c", question],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.strip() == f"True {sys.version_info[:2]}":
            return python
    return ""


def as_nobody() -> list[str]:
    numbers = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    return ["setpriv", *numbers]


def package_directories() -> list[str]:
    source = str(Path(kedge.__file__).parents[1])
    return [source, *(each for each in sys.path if "site-packages" in each)]


def run(
    home: Path, prefix: list[str], jailed: str, script: str, python: str = ""
) -> dict[str, Any]:
    python = python or (interpreter() if prefix else sys.executable)
    if not python:
        pytest.skip("no Python that another user may run")
    packages = package_directories()
    done = subprocess.run(
        [*prefix, python, "-B", "-c", PROGRAM, json.dumps(packages), str(home), jailed, script],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=60,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become another user"
)
def test_an_ordinary_user_has_isolated_containers_without_limits(home: Path) -> None:
    script = (
        "id -u; hostname; ps ax -o pid= | wc -l; ls /sys/class/net; "
        f"cat {home}/secret/token; touch /etc/mine && echo wrote; "
        "mount -t tmpfs x /mnt 2>/dev/null || echo refused"
    )
    seen = run(home, as_nobody(), "", script)
    assert seen["level"] == "userns"
    said = seen["logs"]["seen"]
    plain = [line for line in said if ":" not in line]
    assert plain == ["0", "mine", "3", "lo", "wrote", "refused"]
    assert not any("do not tell" in line for line in said)
    assert seen["logs"]["user"] == ["1234", "5678"]
    assert not any("limit is not enforced" in each for each in seen["shortfalls"])
    assert seen["exec"] == [3, "out\n"]
    assert seen["attacked"] == ["1234", "pause"]
    assert seen["escapes"] == []
    assert seen["lost"] == [137, "ContainerStatusUnknown"]
    assert seen["killed"] == [137, "OOMKilled"]
    assert seen["left"] == []
    assert seen["escaped"] == "invalid cross-device link"
    assert not Path("/etc/mine").exists()


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become another user"
)
def test_the_contract_of_all_runtimes_holds_for_an_ordinary_user(home: Path) -> None:
    python = interpreter()
    if not python:
        pytest.skip("no Python that another user may run")
    root = Path(__file__).parents[2]
    suite = ["tests/contract/test_runtime.py", "-k", "embedded"]
    quietly = ["-q", "-p", "no:cacheprovider", f"--basetemp={home / 'tests'}"]
    done = subprocess.run(
        [*as_nobody(), python, "-B", "-m", "pytest", *quietly, *suite],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        timeout=120,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(home),
            "PYTHONPATH": os.pathsep.join([str(root), *package_directories()]),
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 passed" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_without_namespaces_there_are_still_users_logs_and_commands(home: Path) -> None:
    (home / "volume" / "key").write_text("value\n")
    script = f"id -u; grep Seccomp: /proc/self/status; cat {home}.mounted/key; echo err >&2; exit 4"
    seen = run(home, [], "jailed", script)
    assert seen["level"] == "plain"
    assert seen["exit"] == 4
    assert sorted(seen["logs"]["seen"]) == ["0", "Seccomp:\t2", "err", "value"]
    assert seen["escaped"] == "invalid cross-device link"
    assert sorted(os.listdir(home / "volume")) == ["key", "link"]
    assert not Path(f"{home}.mounted").is_symlink()
    assert seen["logs"]["user"] == ["1234", "5678"]
    shared = "it shares processes, files and network with the machine: no namespaces"
    assert shared in seen["shortfalls"]
    assert seen["exec"] == [3, "out\n"]
    assert seen["lost"] == [137, "ContainerStatusUnknown"]
    assert seen["killed"] == [137, "OOMKilled"]
    assert seen["left"] == []


WITHOUT_GROUPS = 'umount -R /sys/fs/cgroup && exec "$@"'


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, to hide control groups"
)
def test_root_without_control_groups_opens_no_device_of_the_machine(home: Path) -> None:
    disk = Path("/").stat().st_dev
    make = f"mknod {{}} b {os.major(disk)} {os.minor(disk)}"
    # Made outside, as by a privileged pod that shares a volume.
    subprocess.run(make.format(home / "volume" / "disk"), shell=True, check=True)
    script = (
        "grep CapBnd /proc/self/status; exec 3< /dev/null && exec 4> /dev/full && echo usual; "
        f"{make.format('/dev/disk')} 2>/dev/null && head -c1 /dev/disk | wc -c; "
        "head -c1 /volume/disk 2>/dev/null | wc -c"
    )
    prefix = ["unshare", "--mount", "sh", "-c", WITHOUT_GROUPS, "sh"]
    seen = run(home, prefix, "", script, python=sys.executable)
    assert seen["level"] == "userns"
    bounds, *said = seen["logs"]["seen"]
    assert not int(bounds.split()[1], 16) >> 27 & 1
    assert said == ["usual", "0"]
    reason = "its devices cannot be limited: control groups are not available"
    assert f"it does not get CAP_MKNOD: {reason}" in seen["shortfalls"]
    assert seen["escapes"] == []
