"""What real containers see and suffer: the embedded runtime as root, on real control groups."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kedge.node.images.image import HOST_IMAGE, Image
from kedge.node.images.store import NoSuchImage
from kedge.node.runtime.embedded import EmbeddedRuntime
from kedge.node.runtime.runtime import (
    Container,
    ContainerSpec,
    Device,
    Dns,
    Level,
    Mount,
    PidMode,
    Resources,
    RuntimeFailure,
    Sandbox,
    SandboxSpec,
    Security,
    State,
)
from kedge.supervisor import cgroups, devices

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

GROUPS = f"/kedge-test-{os.getpid()}"


class Images:
    """The machine itself, and whatever a test adds."""

    def __init__(self) -> None:
        self.known = {"host": HOST_IMAGE}
        self.held: dict[str, str] = {}

    def get(self, id_: str) -> Image | None:
        return self.known.get(id_)

    def hold(self, id_: str, container: str) -> None:
        self.held[container] = id_

    def release(self, container: str) -> None:
        self.held.pop(container, None)


class Bench:
    """A runtime with short ways to what tests do most."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.images = Images()
        self.runtime: EmbeddedRuntime
        self._containers = 0

    async def open(self) -> None:
        self.runtime = await EmbeddedRuntime.open(self.directory / "runtime", self.images)

    async def pod(self, name: str = "pod", **more: Any) -> Sandbox:
        spec = SandboxSpec(
            namespace="default",
            name=name,
            uid=f"uid-of-{name}",
            log_directory=str(self.directory / "logs" / name),
            cgroup_parent=f"{GROUPS}/{name}",
            **{"hostname": name, **more},
        )
        return await self.runtime.run_sandbox(spec)

    async def create(self, sandbox: Sandbox, *argv: str, **more: Any) -> str:
        self._containers += 1
        name = f"c{self._containers}"
        spec = ContainerSpec(
            **{"name": name, "image": "host", "command": argv, "log_path": f"{name}.log", **more}
        )
        return await self.runtime.create_container(sandbox.id, spec)

    async def start(self, sandbox: Sandbox, *argv: str, **more: Any) -> str:
        container = await self.create(sandbox, *argv, **more)
        await self.runtime.start_container(container)
        return container

    async def ended(self, container: str) -> Container:
        """The container after it has ended by itself."""
        connected = await self.runtime._connected()
        await connected.ask("wait", container=container)
        return await self.runtime.container(container)

    async def run(self, *argv: str, **more: Any) -> tuple[Container, str]:
        """A pod with one container that runs to its end, and what it said."""
        pod = {key: more.pop(key) for key in list(more) if key in SandboxSpec.__struct_fields__}
        more |= {key: pod.pop(key) for key in ("annotations", "labels") if key in pod}
        sandbox = await self.pod(f"run{self._containers}", **pod)
        container = await self.ended(await self.start(sandbox, *argv, **more))
        text = self.said(container)
        await self.runtime.remove_sandbox(sandbox.id)
        return container, text

    async def shell(self, script: str, **more: Any) -> str:
        """What a script says in a container of its own."""
        return (await self.run("sh", "-c", script, **more))[1]

    def said(self, container: Container) -> str:
        lines = Path(container.log_path).read_text().splitlines()
        return "".join(line.split(" ", 3)[3] + "\n" for line in lines)


def mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def groups_left() -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*{GROUPS}"))


def containers_left() -> list[Path]:
    """Groups of containers; those of their pods stay as long as the pods do."""
    return [each for each in Path("/sys/fs/cgroup").glob(f"*{GROUPS}/*/*") if each.is_dir()]


def processes_in(group: str) -> set[int]:
    doors = Path("/sys/fs/cgroup").glob(f"*{group}/cgroup.procs")
    return {int(pid) for door in doors for pid in door.read_text().split()}


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_of(pid: int) -> int:
    """Kilobytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def lines_of(container: Container) -> list[list[str]]:
    """Stream, tag and text of each line of a log."""
    lines = Path(container.log_path).read_text().splitlines()
    return [line.split(" ", 3)[1:] for line in lines]


def small_root(directory: Path, *programs: str) -> Path:
    """A root with a few of the machine's programs, and the libraries that they need."""
    for program in programs:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=False)
        words = listed.stdout.split()
        for path in [program, *(word for word in words if word.startswith("/"))]:
            target = directory / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return directory


def processes_below(directory: Path) -> list[str]:
    """Supervisors, and whatever has its files there."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(directory) in command:
            found.append(command)
    return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Checks afterwards that nothing is left on the machine."""
    before = mounts()
    opened = Bench(tmp_path)
    await opened.open()
    yield opened
    for sandbox in await opened.runtime.sandboxes():
        await opened.runtime.remove_sandbox(sandbox.id)
    await opened.runtime.shutdown()
    await gone(opened.runtime.supervisor)
    assert mounts() - before == set()
    assert groups_left() == []
    assert processes_below(tmp_path) == []
    assert opened.images.held == {}


async def gone(pid: int) -> None:
    """Wait for a process that is no child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)


async def read(descriptor: int, until: Callable[[bytes], bool] = lambda _: False) -> bytes:
    """What comes from a descriptor until its end, or until it is enough."""
    return await asyncio.to_thread(_read, descriptor, until)


def _read(descriptor: int, until: Callable[[bytes], bool]) -> bytes:
    os.set_blocking(descriptor, True)
    data = b""
    while not until(data):
        try:
            more = os.read(descriptor, 65_536)
        except OSError:
            break
        if not more:
            break
        data += more
    return data


# How containers end.


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 0", 0, "Completed"),
        ("exit 3", 3, "Error"),
        ("kill -9 $$ & exec sleep 0.2", 0, "Completed"),
        ("sh -c 'kill -9 $$'", 137, "Error"),
    ],
)
async def test_exit_codes_are_those_of_the_first_process(
    bench: Bench, script: str, code: int, reason: str
) -> None:
    ended, _ = await bench.run("sh", "-c", script)
    assert (ended.exit_code, ended.reason) == (code, reason)


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("nope", 'exec: "nope": executable file not found in $PATH'),
        ("/no/pe", 'exec: "/no/pe": stat /no/pe: no such file or directory'),
        ("/etc/passwd", 'exec: "/etc/passwd": permission denied'),
        ("/etc", 'exec: "/etc": is a directory'),
    ],
)
async def test_a_program_that_cannot_run_is_a_start_error(
    bench: Bench, program: str, message: str
) -> None:
    container = await bench.create(await bench.pod(), program)
    with pytest.raises(RuntimeFailure, match=message.replace("$", r"\$")):
        await bench.runtime.start_container(container)
    ended = await bench.runtime.container(container)
    assert (ended.state, ended.exit_code) == (State.EXITED, 128)
    assert (ended.reason, ended.message) == ("StartError", message)


async def test_an_image_that_is_removed_at_that_moment_leaves_no_container(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await bench.pod()

    def gone(id_: str, container: str) -> None:
        raise NoSuchImage(id_)

    monkeypatch.setattr(bench.images, "hold", gone)
    with pytest.raises(RuntimeFailure, match="image host has just been removed"):
        await bench.create(pod, "true")
    assert await bench.runtime.containers() == []


async def test_who_minds_the_signal_ends_at_once_and_who_does_not_is_killed(bench: Bench) -> None:
    sandbox = await bench.pod()
    script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done"
    polite = await bench.start(sandbox, "sh", "-c", script)
    await until_said(bench, polite, "ready")
    async with asyncio.timeout(10):
        await bench.runtime.stop_container(polite, 60)
    assert (await bench.runtime.container(polite)).exit_code == 7
    deaf = await bench.start(sandbox, "sleep", "1000")
    await bench.runtime.stop_container(deaf, 0.05)
    assert (await bench.runtime.container(deaf)).exit_code == 137


async def test_the_stop_signal_of_the_pod_is_the_one_that_is_sent(bench: Bench) -> None:
    script = "trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done"
    container = await bench.start(await bench.pod(), "sh", "-c", script, stop_signal="SIGUSR1")
    await until_said(bench, container, "ready")
    async with asyncio.timeout(10):
        await bench.runtime.stop_container(container, 60)
    assert (await bench.runtime.container(container)).exit_code == 9


async def test_who_needs_more_memory_than_allowed_is_oom_killed(bench: Bench) -> None:
    greedy = (
        "import mmap; m = mmap.mmap(-1, 200 << 20); [m.write(b'x' * 4096) for _ in range(51200)]"
    )
    ended, _ = await bench.run(
        "/usr/bin/python3", "-c", greedy, resources=Resources(memory_limit=48 << 20)
    )
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


async def test_an_oom_killed_child_is_told_while_the_container_lives_on(bench: Bench) -> None:
    greedy = "b = bytearray(200 << 20)"
    container = await bench.create(
        await bench.pod(),
        "sh",
        "-c",
        f"/usr/bin/python3 -c '{greedy}'; sleep 1000",
        resources=Resources(memory_limit=48 << 20),
    )
    watch = aiter(bench.runtime.watch())
    first = asyncio.ensure_future(anext(watch))
    await bench.runtime.sandboxes()
    await bench.runtime.start_container(container)
    async with asyncio.timeout(20):
        assert [(await first).type, (await anext(watch)).type] == ["started", "oom"]
    assert (await bench.runtime.container(container)).state is State.RUNNING


async def test_a_fork_bomb_stays_inside_its_limit(bench: Bench) -> None:
    script = "for i in $(seq 60); do sleep 100 & done; echo alive"
    ended, said = await bench.run("sh", "-c", script, resources=Resources(pids_limit=20))
    assert "Cannot fork" in said or "alive" not in said
    assert ended.exit_code != 0


async def test_limits_are_those_of_the_control_group_and_can_be_changed(bench: Bench) -> None:
    container = await bench.start(
        await bench.pod(),
        "sleep",
        "1000",
        resources=Resources(
            cpu_shares=512, cpu_quota=50_000, memory_limit=64 << 20, pids_limit=100
        ),
    )
    path = (await bench.runtime.container(container)).cgroup
    assert path == f"{GROUPS}/pod/{container}"

    def limits() -> tuple[str, ...]:
        if Path("/sys/fs/cgroup/memory").exists():
            names = ["cpu/cpu.cfs_quota_us", "memory/memory.limit_in_bytes", "pids/pids.max"]
            places = [name.replace("/", f"{path}/", 1) for name in names]
        else:
            places = [f"{path}/{name}" for name in ("cpu.max", "memory.max", "pids.max")]
        return tuple(
            (Path("/sys/fs/cgroup") / place.lstrip("/")).read_text().split()[0] for place in places
        )

    assert limits() == ("50000", str(64 << 20), "100")
    await bench.runtime.update_container(
        container, Resources(cpu_quota=20_000, memory_limit=128 << 20)
    )
    assert limits() == ("20000", str(128 << 20), "100")


# What containers see.


async def test_a_container_sees_its_own_processes_host_name_and_network_only(bench: Bench) -> None:
    said = await bench.shell("ps ax -o pid=; hostname; ls /sys/class/net", hostname="mine")
    first, *rest = said.split()
    assert first == "1"
    assert len(rest) == 3
    assert rest[1:] == ["mine", "lo"]


async def test_what_a_container_writes_is_gone_with_it(bench: Bench) -> None:
    mark = f"/etc/kedge-{os.getpid()}"
    said = await bench.shell(f"echo mine > {mark}; cat {mark}; rm /etc/passwd; ls /etc/passwd")
    assert said.startswith("mine")
    assert "No such file" in said
    assert "passwd" in os.listdir("/etc")
    assert os.path.basename(mark) not in os.listdir("/etc")


async def test_a_container_sees_neither_the_state_directory_nor_the_disk(bench: Bench) -> None:
    state = bench.directory / "runtime"
    said = await bench.shell(
        f"ls -A {state} | wc -l; mknod /dev/disk b $(stat -c '0x%t 0x%T' /dev/null) "
        f"&& head -c1 /dev/disk; cat /proc/kcore | wc -c; ls /sys/firmware | wc -l; "
        f"mknod /dev/vd b 254 0; head -c1 /dev/vd | wc -c"
    )
    lines = said.split("\n")
    assert lines[0] == "0"
    assert "Operation not permitted" in said
    assert "1" not in lines


async def test_files_of_the_pod_are_the_container_s_own(bench: Bench) -> None:
    dns = Dns(servers=["10.0.0.10"], searches=["default.svc", "svc"], options=["ndots:5"])
    said = await bench.shell("cat /etc/resolv.conf /etc/hostname", dns=dns, hostname="mine")
    expected = "search default.svc svc\nnameserver 10.0.0.10\noptions ndots:5\nmine\n"
    assert said == expected


async def test_mounts_appear_where_nothing_was(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inside").write_text("hello")
    (tmp_path / "file").write_text("single")
    binds = [
        Mount(container_path="/new/place", host_path=str(tmp_path / "data")),
        Mount(container_path="/new/ro", host_path=str(tmp_path / "data"), read_only=True),
        Mount(container_path="/other/file.txt", host_path=str(tmp_path / "file")),
    ]
    said = await bench.shell(
        "cat /new/place/inside /other/file.txt; echo back > /new/place/out; echo no > /new/ro/out",
        mounts=binds,
    )
    assert "hellosingle" in said
    assert "Read-only file system" in said
    assert (tmp_path / "data" / "out").read_text() == "back\n"


async def test_a_mount_that_cannot_be_made_says_which(bench: Bench) -> None:
    binds = [Mount(container_path="/there", host_path="/not/there")]
    container = await bench.create(await bench.pod(), "true", mounts=binds)
    message = 'failed to mount "/not/there" at "/there": no such file or directory'
    with pytest.raises(RuntimeFailure, match=message):
        await bench.runtime.start_container(container)


async def test_links_of_an_image_do_not_lead_out_of_it(bench: Bench, tmp_path: Path) -> None:
    base = small_root(tmp_path / "base", "/bin/sh", "/bin/cat", "/bin/ls")
    layer = tmp_path / "layer"
    (layer / "volumes").mkdir(parents=True)
    (layer / "volumes" / "escape").symlink_to(tmp_path / "outside")
    (layer / "hello").write_text("from the layer")
    bench.images.known["small"] = Image("small", "small", layers=(layer, base))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mounted").touch()
    said = await bench.shell(
        "cat /hello; ls /volumes/escape/; ls /",
        image="small",
        mounts=[Mount(container_path="/volumes/escape", host_path=str(tmp_path / "data"))],
    )
    assert said.startswith("from the layermounted\n")
    assert "hello" in said.split()
    assert not (tmp_path / "outside").exists()


async def test_a_read_only_root_is_read_only_but_for_its_volumes(
    bench: Bench, tmp_path: Path
) -> None:
    said = await bench.shell(
        "touch /x; touch /data/y && echo wrote",
        security=Security(read_only_root=True),
        mounts=[Mount(container_path="/data", host_path=str(tmp_path))],
        working_dir="/made/for/me",
    )
    assert "Read-only file system" in said
    assert "wrote" in said


async def test_the_working_directory_and_the_environment_are_the_pod_s(bench: Bench) -> None:
    said = await bench.shell("pwd; echo $A $HOME", working_dir="/made/for/me", env=[("A", "b c")])
    assert said == "/made/for/me\nb c /root\n"


async def test_a_large_environment_passes(bench: Bench) -> None:
    env = [(f"NAME{number}", "v" * 10_000) for number in range(30)]
    assert await bench.shell("env | wc -c", env=env) > "300000"


# What containers may do.


async def status_of(bench: Bench, security: Security) -> dict[str, str]:
    said = await bench.shell("cat /proc/self/status", security=security)
    return {name: value.strip() for name, _, value in (x.partition(":") for x in said.split("\n"))}


async def test_the_default_is_the_well_known_capabilities_behind_a_filter(bench: Bench) -> None:
    status = await status_of(bench, Security())
    assert status["CapEff"] == status["CapBnd"] == "00000000a80425fb"
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "0")


async def test_users_groups_and_promises_are_kept(bench: Bench) -> None:
    security = Security(
        user=1234,
        group=5678,
        groups=(2000, 3000),
        no_new_privileges=True,
        drop_capabilities=("ALL",),
    )
    status = await status_of(bench, security)
    assert status["Uid"].split() == ["1234"] * 4
    assert status["Gid"].split() == ["5678"] * 4
    assert status["Groups"].split() == ["2000", "3000", "5678"]
    assert status["CapEff"] == status["CapBnd"] == "0" * 16
    assert status["NoNewPrivs"] == "1"


async def test_capabilities_are_added_and_dropped_by_name(bench: Bench) -> None:
    security = Security(add_capabilities=("NET_ADMIN",), drop_capabilities=("CAP_MKNOD", "KILL"))
    status = await status_of(bench, security)
    assert int(status["CapEff"], 16) == 0xA80425FB - (1 << 27) - (1 << 5) + (1 << 12)


async def test_the_privileged_may_do_everything(bench: Bench) -> None:
    status = await status_of(bench, Security(privileged=True))
    assert status["Seccomp"] == "0"
    script = (
        "mount -t tmpfs x /mnt && echo mounted; test -e /dev/kmsg && echo devices; touch /sys/x"
    )
    said = await bench.shell(script, security=Security(privileged=True))
    assert "mounted" in said
    assert "devices" in said


@pytest.mark.parametrize(
    "command",
    [
        "unshare -m true",
        "unshare -U true",
        "mount -t tmpfs x /mnt",
        "date -s 2020-01-01",
        "hostname other",
        "dmesg",
    ],
)
async def test_what_would_touch_the_machine_is_not_permitted(bench: Bench, command: str) -> None:
    ended, said = await bench.run("sh", "-c", command)
    assert ended.exit_code != 0
    assert any(words in said.lower() for words in ("not permitted", "denied", "must be root"))


async def test_a_profile_in_a_file_decides_which_calls_fail(bench: Bench, tmp_path: Path) -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13},
            {
                "names": ["sethostname"],
                "action": "SCMP_ACT_ERRNO",
                "args": [{"index": 1, "value": 3, "op": "SCMP_CMP_EQ"}],
            },
        ],
    }
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profile))
    said = await bench.shell("mkdir /tmp/x; echo done", security=Security(seccomp=str(path)))
    assert "Permission denied" in said
    assert "done" in said
    with pytest.raises(RuntimeFailure, match="cannot load seccomp profile"):
        await bench.create(
            await bench.pod("other"), "true", security=Security(seccomp="/no/profile")
        )


async def test_a_device_that_is_given_can_be_opened(bench: Bench) -> None:
    devices = [Device(container_path="/dev/mine", host_path="/dev/fuse", permissions="r")]
    script = "exec 3< /dev/mine && echo opened; echo x > /dev/mine"
    said = await bench.shell(script, devices=devices)
    assert "opened" in said
    assert "not permitted" in said


async def test_the_second_version_s_program_forbids_devices_as_the_first_version_s_rules_do(
    bench: Bench,
) -> None:
    container = await bench.start(
        await bench.pod(), "sleep", "1000", security=Security(privileged=True)
    )
    opens = ["sh", "-c", "exec 3< /dev/fuse && exec 4< /dev/zero && echo both"]
    assert (await bench.runtime.execute(container, opens, 10)).stdout == b"both\n"
    group = cgroups.here().group((await bench.runtime.container(container)).cgroup)
    if not group.attach_point():
        pytest.skip("there is no hierarchy of the second version")
    devices.attach(group.attach_point(), list(devices.ALWAYS))
    done = await bench.runtime.execute(container, opens, 10)
    assert b"not permitted" in done.stderr
    zero = await bench.runtime.execute(container, ["head", "-c1", "/dev/zero"], 10)
    assert zero.stdout == b"\0"


async def test_the_kernel_s_settings_are_read_only_but_for_those_of_the_pod(bench: Bench) -> None:
    said = await bench.shell(
        "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced;"
        "echo 1 > /proc/sys/kernel/shm_rmid_forced",
        sysctls={"net.ipv4.ip_unprivileged_port_start": "80", "kernel.shm_rmid_forced": "1"},
    )
    assert said.startswith("80\n1\n")
    assert "Read-only file system" in said
    with pytest.raises(RuntimeFailure, match="separate kernel namespace"):
        await bench.pod("wrong", sysctls={"vm.swappiness": "1"})


# What the containers of a pod share.


async def test_containers_of_a_pod_share_memory_and_host_name_but_not_processes(
    bench: Bench,
) -> None:
    sandbox = await bench.pod()
    first = await bench.start(sandbox, "sh", "-c", "echo shared > /dev/shm/x; sleep 1000")
    await bench.runtime.execute(first, ["test", "-e", "/dev/shm/x"], 10)
    second = await bench.ended(
        await bench.start(sandbox, "sh", "-c", "cat /dev/shm/x; hostname; ps ax | grep -c slee[p]")
    )
    assert bench.said(second) == "shared\npod\n0\n"


async def test_a_shared_pid_namespace_has_a_first_process_that_reaps(bench: Bench) -> None:
    sandbox = await bench.pod(shared_pid=True)
    security = Security(pid=PidMode.POD)
    await bench.start(sandbox, "sleep", "1234", security=security)
    script = "(sleep 0.01 &); sleep 0.1; ps ax -o stat=,comm="
    other = await bench.ended(await bench.start(sandbox, "sh", "-c", script, security=security))
    said = bench.said(other)
    assert "pause" in said
    assert "sleep" in said
    assert "Z" not in said


async def test_a_container_can_look_into_another(bench: Bench) -> None:
    sandbox = await bench.pod()
    target = await bench.start(sandbox, "sleep", "4321")
    security = Security(pid=PidMode.TARGET, pid_target=target)
    looking = await bench.start(
        sandbox, "sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline", security=security
    )
    assert bench.said(await bench.ended(looking)) == "sleep 4321 \n"


async def test_the_machine_s_own_namespaces_can_be_used(bench: Bench) -> None:
    said = await bench.shell(
        "readlink /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/pid /proc/self/ns/uts",
        host_network=True,
        host_ipc=True,
        host_pid=True,
        security=Security(pid=PidMode.HOST),
    )
    kinds = ("net", "ipc", "pid", "uts")
    assert said.split() == [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]


async def test_processes_that_a_container_leaves_behind_end_with_it(bench: Bench) -> None:
    sandbox = await bench.pod(host_pid=True)
    script = "setsid sleep 98765 & sleep 0.2; echo $!"
    ended = await bench.ended(
        await bench.start(sandbox, "sh", "-c", script, security=Security(pid=PidMode.HOST))
    )
    left = int(bench.said(ended))
    await gone(left)


async def test_a_connection_into_the_pod_comes_from_its_own_loopback(bench: Bench) -> None:
    server = (
        "import socket; s = socket.create_server(('127.0.0.1', 8080)); print('ready', flush=True);"
        "c, a = s.accept(); c.sendall(a[0].encode() + c.recv(100)); c.close(); s.recv(1)"
    )
    sandbox = await bench.pod()
    container = await bench.start(sandbox, "/usr/bin/python3", "-c", server)
    await until_said(bench, container, "ready")
    with socket.socket(fileno=await bench.runtime.dial(sandbox.id, 8080)) as connected:
        connected.setblocking(True)
        connected.sendall(b" hello")
        assert await asyncio.to_thread(connected.recv, 100) == b"127.0.0.1 hello"
    with pytest.raises(RuntimeFailure, match="failed to connect to localhost:81 inside the pod"):
        await bench.runtime.dial(sandbox.id, 81)


async def until_said(bench: Bench, container: str, text: str) -> None:
    """Wait until the log holds a text."""
    known = await bench.runtime.container(container)
    async with asyncio.timeout(20):
        while text not in bench.said(known):
            await bench.runtime.execute(container, ["sleep", "0.02"], 10)


# What containers say and hear.


async def test_the_log_tells_streams_apart_and_cuts_long_lines(bench: Bench) -> None:
    script = "echo out; echo err >&2; head -c 40000 /dev/zero | tr '\\0' x; echo; printf unfinished"
    ended = await bench.ended(await bench.start(await bench.pod(), "sh", "-c", script))
    lines = lines_of(ended)
    assert ["stdout", "F", "out"] in lines
    assert ["stderr", "F", "err"] in lines
    long = [(tag, len(text)) for stream, tag, text in lines if text.startswith("x")]
    assert long == [("P", 16_384), ("P", 16_384), ("F", 7232)]
    assert lines[-1] == ["stdout", "P", "unfinished"]


async def test_a_renamed_log_is_followed_by_a_new_one(bench: Bench) -> None:
    container = await bench.start(
        await bench.pod(), "sh", "-c", "echo one; read x; echo two; sleep 1000", stdin=True
    )
    await until_said(bench, container, "one")
    known = await bench.runtime.container(container)
    os.rename(known.log_path, f"{known.log_path}.old")
    await bench.runtime.reopen_log(container)
    stream = await bench.runtime.attach(container, stdin=True)
    os.write(stream.stdin, b"\n")
    await stream.close()
    await until_said(bench, container, "two")
    assert "one" not in bench.said(known)
    await bench.runtime.remove_container(container)
    assert os.path.basename(known.log_path) not in os.listdir(os.path.dirname(known.log_path))


async def test_who_attaches_sees_output_and_standard_input_outlives_them(bench: Bench) -> None:
    script = "while read line; do echo got $line; done; echo end"
    container = await bench.start(await bench.pod(), "sh", "-c", script, stdin=True)
    for word in (b"one", b"two"):
        stream = await bench.runtime.attach(container, stdin=True)
        os.write(stream.stdin, word + b"\n")
        got = await read(stream.stdout, lambda data: data.endswith(b"\n"))
        assert got == b"got " + word + b"\n"
        await stream.close()
    assert (await bench.runtime.container(container)).state is State.RUNNING


async def test_standard_input_that_is_open_once_ends_with_its_client(bench: Bench) -> None:
    container = await bench.start(
        await bench.pod(), "sh", "-c", "cat; exit 4", stdin=True, stdin_once=True
    )
    stream = await bench.runtime.attach(container, stdin=True)
    os.write(stream.stdin, b"only\n")
    os.close(stream.stdin)
    stream.stdin = -1
    assert await read(stream.stdout) == b"only\n"
    assert await stream.wait() == 4
    await stream.close()


async def test_a_terminal_is_the_container_s_own(bench: Bench) -> None:
    script = "tty; test -t 0 && test -t 1 && echo yes; read line; stty size; echo got $line"
    container = await bench.start(await bench.pod(), "sh", "-c", script, tty=True, stdin=True)
    stream = await bench.runtime.attach(container, stdin=True)
    assert stream.stdin == stream.stdout
    assert stream.stderr == -1
    await until_said(bench, container, "yes")
    await stream.resize(99, 33)
    os.write(stream.stdin, b"hello\n")
    code = await stream.wait()
    await stream.close()
    assert code == 0
    said = bench.said(await bench.runtime.container(container))
    assert said.splitlines() == ["/dev/pts/0", "yes", "hello", "33 99", "got hello"]


# Commands in containers.


async def test_a_command_is_what_the_container_is(bench: Bench) -> None:
    security = Security(user=1234, group=99, groups=(7,), drop_capabilities=("ALL",))
    container = await bench.start(
        await bench.pod(), "sleep", "1000", security=security, env=[("A", "b")], working_dir="/var"
    )
    script = "id -u; id -G; echo $A; pwd; grep CapBnd /proc/self/status; exit 5"
    done = await bench.runtime.execute(container, ["sh", "-c", script], 10)
    assert done.exit_code == 5
    assert done.stdout == b"1234\n99 7\nb\n/var\nCapBnd:\t0000000000000000\n"
    path = (await bench.runtime.container(container)).cgroup
    async with asyncio.TaskGroup() as group:
        group.create_task(bench.runtime.execute(container, ["sleep", "0.3"], 10))
        await bench.runtime.execute(container, ["sleep", "0.1"], 10)
        assert len(processes_in(path)) == 2


async def test_a_command_that_is_not_there_says_so(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    with pytest.raises(RuntimeFailure, match='exec: "nope": executable file not found'):
        await bench.runtime.execute(container, ["nope"], 10)
    await bench.runtime.stop_container(container, 0)
    with pytest.raises(RuntimeFailure, match="not running"):
        await bench.runtime.execute(container, ["true"], 10)


async def test_a_command_that_takes_too_long_ends_with_all_it_began(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    with pytest.raises(TimeoutError):
        await bench.runtime.execute(
            container, ["sh", "-c", "sleep 777 & setsid sleep 778 & sleep 779"], 0.3
        )
    async with asyncio.timeout(10):
        while True:
            seen = await bench.runtime.execute(container, ["ps", "ax", "-o", "args="], 10)
            if b"sleep 77" not in seen.stdout:
                break


async def test_a_command_reads_and_writes_as_much_as_it_likes(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    stream = await bench.runtime.exec_stream(container, ["wc", "-c"], tty=False, stdin=True)
    data = b"x" * 3_000_000
    await asyncio.to_thread(write_all, stream.stdin, data)
    os.close(stream.stdin)
    stream.stdin = -1
    assert await read(stream.stdout) == b"3000000\n"
    assert await stream.wait() == 0
    await stream.close()
    done = await bench.runtime.execute(container, ["head", "-c", "20000000", "/dev/zero"], 20)
    assert len(done.stdout) == 16 << 20


def write_all(descriptor: int, data: bytes) -> None:
    os.set_blocking(descriptor, True)
    while data:
        data = data[os.write(descriptor, data) :]


async def test_a_command_with_a_terminal_can_be_resized_and_left(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    script = "tty; read x; stty size; sleep 555"
    stream = await bench.runtime.exec_stream(container, ["sh", "-c", script], tty=True, stdin=True)
    first = await read(stream.stdout, lambda data: b"\n" in data)
    assert first.startswith(b"/dev/pts/")
    await stream.resize(120, 40)
    os.write(stream.stdin, b"\n")
    assert b"40 120" in await read(stream.stdout, lambda data: b"40 120" in data)
    await stream.close()
    seen = await bench.runtime.execute(container, ["ps", "ax", "-o", "args="], 10)
    assert b"sleep 555" not in seen.stdout


# Who survives whom.


async def test_containers_outlive_the_agent_and_the_next_one_learns_how_they_ended(
    bench: Bench,
) -> None:
    sandbox = await bench.pod()
    stays = await bench.start(sandbox, "sleep", "1000", annotations={"hash": "1"})
    ends = await bench.start(sandbox, "sh", "-c", "sleep 0.05; exit 42")
    supervisor = bench.runtime.supervisor
    await bench.runtime.close()
    await bench.open()
    assert bench.runtime.supervisor == supervisor
    await bench.ended(ends)
    seen = {each.id: each for each in await bench.runtime.containers()}
    assert seen[stays].state is State.RUNNING
    assert seen[stays].annotations == {"hash": "1"}
    assert (seen[ends].exit_code, seen[ends].reason) == (42, "Error")
    assert [each.ready for each in await bench.runtime.sandboxes()] == [True]


async def test_containers_end_with_their_supervisor_and_nothing_is_left(bench: Bench) -> None:
    sandbox = await bench.pod(shared_pid=True)
    user = await bench.start(sandbox, "sleep", "1000", security=Security(user=1000))
    pooled = await bench.start(sandbox, "sleep", "1001", security=Security(pid=PidMode.POD))
    never = await bench.create(sandbox, "sleep", "1002")
    pids = [(await bench.runtime.container(each)).pid for each in (user, pooled)]
    os.kill(bench.runtime.supervisor, signal.SIGKILL)
    for pid in pids:
        await gone(pid)
    seen = {each.id: each for each in await bench.runtime.containers()}
    for each in (user, pooled):
        assert (seen[each].state, seen[each].exit_code) == (State.EXITED, 137)
        assert seen[each].reason == "ContainerStatusUnknown"
    assert seen[never].state is State.CREATED
    assert [each.ready for each in await bench.runtime.sandboxes()] == [False]
    assert containers_left() == []
    _, said = await bench.run("echo", "again")
    assert said == "again\n"


async def test_who_escapes_the_parent_s_death_is_found_by_the_next_supervisor(bench: Bench) -> None:
    # A program that changes its user by a set-user-id file is not told of its parent's end.
    security = Security(pid=PidMode.HOST)
    container = await bench.start(
        await bench.pod(host_pid=True),
        "sh",
        "-c",
        "setsid sleep 1000 & sleep 1000",
        security=security,
    )
    status = await bench.runtime.execute(container, ["cat", "/proc/self/cgroup"], 10)
    assert status.exit_code == 0
    path = (await bench.runtime.container(container)).cgroup
    pids = processes_in(path)
    assert len(pids) == 3
    os.kill(bench.runtime.supervisor, signal.SIGKILL)
    await gone(bench.runtime.supervisor)
    await bench.runtime.containers()
    for pid in pids:
        await gone(pid)


async def test_a_supervisor_killed_at_any_moment_leaves_nothing_that_runs(bench: Bench) -> None:
    chance = random.Random(7)
    for number in range(12):
        sandbox = await bench.pod(f"pod{number}", shared_pid=number % 2 == 0)
        steps = [bench.start(sandbox, "sleep", "1000") for _ in range(3)]
        starting = asyncio.gather(*steps, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(starting), chance.uniform(0, 0.05))
        os.kill(bench.runtime.supervisor, signal.SIGKILL)
        await starting
        pids = processes_in(f"{GROUPS}/pod{number}/*")
        for each in await bench.runtime.containers():
            assert each.state is not State.RUNNING
        for pid in pids:
            await gone(pid)
        for left in await bench.runtime.sandboxes():
            await bench.runtime.remove_sandbox(left.id)
        assert containers_left() == []


async def test_there_is_one_supervisor_to_a_directory(bench: Bench) -> None:
    start = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from kedge.supervisor.__main__ import main; main(sys.argv[1])"
    )
    source = str(Path(sys.modules["kedge"].__file__ or "").parents[1])
    directory = str(bench.directory / "runtime")
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-I", "-S", "-c", start, directory, source],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == f"another supervisor has {directory}\n"


async def test_many_start_at_once(bench: Bench) -> None:
    async def one(number: int) -> str:
        return await bench.start(await bench.pod(f"pod{number}"), "sleep", "1000")

    started: Sequence[Awaitable[str]] = [one(number) for number in range(20)]
    containers = await asyncio.gather(*started)
    states = {each.id: each.state for each in await bench.runtime.containers()}
    assert states == dict.fromkeys(containers, State.RUNNING)


async def test_the_supervisor_is_small_and_leaks_no_descriptors(bench: Bench) -> None:
    assert bench.runtime.level is Level.FULL
    await bench.run("true")
    before = descriptors_of(bench.runtime.supervisor)
    for _ in range(3):
        sandbox = await bench.pod(shared_pid=True)
        container = await bench.start(sandbox, "sleep", "100", tty=True, stdin=True)
        await bench.runtime.execute(container, ["true"], 10)
        stream = await bench.runtime.attach(container, stdin=True)
        await stream.close()
        await bench.runtime.remove_sandbox(sandbox.id)
    assert descriptors_of(bench.runtime.supervisor) == before
    assert resident_of(bench.runtime.supervisor) < 15_000
