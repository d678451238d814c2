"""Real programs in real container runtimes: what they see, how they end, and who survives whom."""

import asyncio
import base64
import contextlib
import os
import re
import select
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from kedge.api.core_v1.secret import Secret
from kedge.machinery.clock import SystemClock
from kedge.node.images.garbage import DiskSpace, GarbageThresholds
from kedge.node.images.mapping import ImageMapping
from kedge.node.pod.dependencies import ImageFailure
from kedge.node.runtime.cri import image_service, log_rotation
from kedge.node.runtime.cri.connection import CriConnection
from kedge.node.runtime.cri.cri_runtime import CriRuntime
from kedge.node.runtime.cri.image_service import CriImageService
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    ContainerStream,
    DnsConfig,
    PodSandbox,
    RunState,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.testing import container_daemon, container_daemons, images
from kedge.testing.clock import FakeClock
from kedge.testing.container_daemon import BOX, PAUSE, RuntimeDaemon
from kedge.testing.registry import registry

SLEEP = "exec sleep 1000"
FIRST = 0x7F00_0000
"""The machine's id of root in a pod with users of its own."""
# containerd handles a new size beside the input, so it may come after it.
SIZE = 'while [ -z "$s" ]; do s=$(stty size 2>/dev/null); done; echo $s'
LINES = "i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo line $i; done"


@pytest.fixture(scope="module", params=container_daemons.names())
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RuntimeDaemon]:
    if reason := container_daemons.lacks(request.param):
        pytest.skip(reason)
    place = tmp_path_factory.mktemp(request.param)
    with container_daemons.running(request.param, place) as running:
        yield running


async def connected(daemon: RuntimeDaemon, tmp_path: Path) -> CriRuntime:
    return await CriRuntime.connect(
        tmp_path / "runtime", CriConnection(daemon.socket), tmp_path.name
    )


@pytest.fixture
async def runtime(daemon: RuntimeDaemon, tmp_path: Path) -> AsyncIterator[CriRuntime]:
    opened = await connected(daemon, tmp_path)
    yield opened
    made = opened.cgroups
    await opened.shutdown()
    # The node makes and removes the groups of pods, in the hierarchies that it uses.
    assert made is not None
    made.group(group_of(tmp_path)).remove()
    assert [each for each in mounts() if each.startswith(str(tmp_path))] == []
    assert groups(tmp_path) == []


def mounts() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def groups(tmp_path: Path) -> list[Path]:
    """The control groups that runc has left in hierarchies that kedge does not use."""
    return [*Path("/sys/fs/cgroup").glob(f"*/{group_of(tmp_path)[1:]}/*")]


def text_of(path: str) -> str:
    """The content of a file; empty if there is none."""
    try:
        return Path(path).read_text()
    except FileNotFoundError:
        return ""


def group_of(tmp_path: Path) -> str:
    return f"/kedge-cri-{os.getpid()}-{tmp_path.name}"


async def pod(runtime: CriRuntime, tmp_path: Path, *, first_id: int = 0) -> PodSandbox:
    return await runtime.run_sandbox(
        SandboxConfig(
            namespace="default",
            name="web",
            uid=f"uid-{tmp_path.name}",
            hostname="web",
            log_directory=str(tmp_path / "logs"),
            cgroup_parent=group_of(tmp_path),
            first_id=first_id,
            dns=DnsConfig(servers=["192.0.2.53"], searches=["here"], options=["ndots:5"]),
        )
    )


def shell(script: str, name: str = "main", **more: object) -> ContainerConfig:
    return ContainerConfig(
        name=name,
        image=BOX,
        image_name=BOX,
        command=("/bin/sh", "-c", script),
        log_path=f"{name}/0.log",
        **more,  # type: ignore[arg-type]
    )


async def started(runtime: CriRuntime, sandbox: PodSandbox, spec: ContainerConfig) -> str:
    container = await runtime.create_container(sandbox.id, spec)
    await runtime.start_container(container)
    return container


async def ended(runtime: CriRuntime, container: str) -> tuple[int, str]:
    """The exit code and the reason, as soon as an event tells of the end."""
    async with asyncio.timeout(20):
        while (seen := await runtime.container(container)).state is not RunState.EXITED:
            await anext(aiter(runtime.watch()))
    return seen.exit_code, seen.reason


async def output(stream: ContainerStream) -> bytes:
    async with asyncio.timeout(20):
        await stream.wait()
    return os.read(stream.stdout, 65_536)


async def test_a_program_gets_what_its_spec_says(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    (volume / "inner").mkdir(parents=True)
    (volume / "inner" / "file").write_text("in the volume\n")
    sandbox = await pod(runtime, tmp_path)
    script = (
        "id -u; id -g; echo $GREETING; cat /data/file; cat /etc/resolv.conf; pwd; touch /data/x"
    )
    container = await started(
        runtime,
        sandbox,
        shell(
            f"{script} 2>&1; {SLEEP}",
            env=[("GREETING", "hello")],
            working_dir="/tmp",
            mounts=[
                ContainerMount(
                    container_path="/data", host_path=str(volume), part="inner", read_only=True
                )
            ],
            security=ContainerSecurity(user=1000, group=1000),
            resources=ContainerLimits(memory_limit=64 << 20, cpu_shares=512),
        ),
    )
    seen = await runtime.container(container)
    assert (seen.user, seen.group, seen.runtime) == (1000, 1000, daemon.name)
    prefix = {"cri-o": "crio-"}.get(daemon.name, "")
    assert seen.cgroup == f"{group_of(tmp_path)}/{prefix}{container}"
    assert runtime.cgroups is not None
    memory = runtime.cgroups.place("memory")
    assert memory is not None
    limit = "memory.max" if memory.unified else "memory.limit_in_bytes"
    assert int(text_of(f"{memory.place}{seen.cgroup}/{limit}")) == 64 << 20
    await runtime.update_container(container, ContainerLimits(memory_limit=128 << 20))
    assert int(text_of(f"{memory.place}{seen.cgroup}/{limit}")) == 128 << 20
    assert (await runtime.execute(container, ["cat", "/etc/hostname"], 10)).stdout == b"web\n"
    said = [line.split(" ", 3)[3] for line in text_of(seen.log_path).splitlines()]
    assert said[:4] == ["1000", "1000", "hello", "in the volume"]
    assert "nameserver 192.0.2.53" in said
    assert said[-2:] == ["/tmp", "touch: /data/x: Read-only file system"]


async def test_what_a_runtime_can_do_is_done_and_the_rest_is_told(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path
) -> None:
    below = tmp_path / "volume" / "below"
    below.mkdir(parents=True)
    can = runtime.features
    assert can.stop_signals is (daemon.name == "cri-o")
    sandbox = await pod(runtime, tmp_path)
    mount = ContainerMount(
        container_path="/data",
        host_path=str(below.parent),
        read_only=True,
        recursive_read_only=True,
    )
    spec = shell(
        "id -G; touch /data/below/x; trap 'exit 7' INT; trap '' TERM; echo trapped;"
        " while true; do sleep 0.1; done",
        mounts=[mount],
        stop_signal="SIGINT",
        security=ContainerSecurity(user=1001, group=0, groups=[4000], merge_image_groups=False),
    )
    with mounted_memory(below):
        container = await started(runtime, sandbox, spec)
        seen = await runtime.container(container)
        async with asyncio.timeout(20):
            while "trapped" not in text_of(seen.log_path):
                await SystemClock().sleep(0.05)
        await runtime.stop_container(container, 1)
        wrote = (below / "x").exists()
    lines = [line.split(" ", 3)[3] for line in text_of(seen.log_path).splitlines()]
    code = (await runtime.container(container)).exit_code
    done = (code == 7, lines[0] == "0 4000", not wrote)
    assert done == (can.stop_signals, can.strict_groups, can.recursive_read_only)
    assert len(seen.shortfalls) == done.count(False)


async def test_a_pod_has_users_of_its_own_if_the_runtime_has_user_namespaces(
    runtime: CriRuntime, tmp_path: Path
) -> None:
    if not runtime.features.user_namespaces:
        assert "need kedge's own runtime" in runtime.no_user_namespaces
        return
    volume = tmp_path / "volume"
    (volume / "inner").mkdir(parents=True)
    sandbox = await pod(runtime, tmp_path, first_id=FIRST)
    mounts = [
        ContainerMount(container_path="/data", host_path=str(volume)),
        ContainerMount(container_path="/part", host_path=str(volume), part="inner"),
    ]
    script = f"id -u; cat /proc/self/uid_map; touch /data/x /part/y /z; {SLEEP}"
    container = await started(runtime, sandbox, shell(script, mounts=mounts))
    seen = await runtime.container(container)
    assert (seen.user, seen.group) == (0, 0)
    assert os.stat(f"/proc/{seen.pid}").st_uid == FIRST
    async with asyncio.timeout(20):
        while not (volume / "inner" / "y").exists():
            await SystemClock().sleep(0.05)
    # Root in the pod is root in its volumes, and an ordinary user of the machine.
    assert [(volume / name).stat().st_uid for name in ("x", "inner/y")] == [0, 0]
    done = await runtime.execute(container, ["cat", "/proc/self/uid_map"], 10)
    assert done.stdout.split() == [b"0", str(FIRST).encode(), b"65536"]
    again = await runtime.container(container)
    assert again == seen


@contextlib.contextmanager
def mounted_memory(place: Path) -> Iterator[None]:
    """Mount a tmpfs that all may write to."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


async def test_the_files_of_a_volume_outlive_the_container(
    runtime: CriRuntime, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    (volume / "inner" / "deep").mkdir(parents=True)
    kept = [volume / "inner" / "deep" / "file", volume / "single"]
    for each in kept:
        each.write_text("precious")
    mounted = [
        ContainerMount(container_path="/data", host_path=str(volume), part="inner"),
        ContainerMount(container_path="/single", host_path=str(volume), part="single"),
    ]
    sandbox = await pod(runtime, tmp_path)
    first = await started(
        runtime, sandbox, shell("cat /data/deep/file /single", "first", mounts=mounted)
    )
    assert await ended(runtime, first) == (0, "Completed")
    await started(runtime, sandbox, shell(SLEEP, "second", mounts=mounted))
    await runtime.remove_container(first)
    assert [each.read_text() for each in kept] == ["precious", "precious"]
    # The second container goes with its sandbox.
    await runtime.remove_sandbox(sandbox.id)
    assert [each.read_text() for each in kept] == ["precious", "precious"]
    assert [each for each in mounts() if each.startswith(str(tmp_path))] == []


async def test_ends_have_codes_and_reasons(runtime: CriRuntime, tmp_path: Path) -> None:
    sandbox = await pod(runtime, tmp_path)
    fine = await started(runtime, sandbox, shell("true", "fine"))
    assert await ended(runtime, fine) == (0, "Completed")
    failed = await started(runtime, sandbox, shell("exit 3", "failed"))
    assert await ended(runtime, failed) == (3, "Error")
    limited = ContainerLimits(memory_limit=20 << 20)
    greedy = await started(
        runtime, sandbox, shell("exec tail /dev/zero", "greedy", resources=limited)
    )
    assert await ended(runtime, greedy) == (137, "OOMKilled")


async def test_a_program_that_is_not_there_is_told(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path
) -> None:
    sandbox = await pod(runtime, tmp_path)
    absent = ContainerConfig(name="absent", image=BOX, image_name=BOX, command=("/nothing",))
    if daemon.name == "cri-o":
        # It looks for the program sooner, and keeps no container.
        with pytest.raises(RuntimeFailure, match=r"(?i)/nothing.*no such file"):
            await runtime.create_container(sandbox.id, absent)
        assert await runtime.containers() == []
        return
    container = await runtime.create_container(sandbox.id, absent)
    with pytest.raises(RuntimeFailure, match="no such file"):
        await runtime.start_container(container)
    assert await ended(runtime, container) == (128, "StartError")


async def test_commands_have_streams_and_exit_codes(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path
) -> None:
    container = await started(runtime, await pod(runtime, tmp_path), shell(SLEEP))
    done = await runtime.execute(container, ["sh", "-c", "echo out; echo err >&2; exit 3"], 10)
    assert (done.exit_code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    with pytest.raises(TimeoutError):
        await runtime.execute(container, ["sleep", "60"], 1)
    stream = await runtime.exec_stream(
        container, ["sh", "-c", "cat; exit 4"], tty=False, stdin=True
    )
    os.write(stream.stdin, b"to the command")
    os.close(stream.stdin)
    assert await output(stream) == b"to the command"
    assert await stream.wait() == 4
    await stream.close()
    # The command waits at the end: CRI-O may drop what one with a terminal writes just before it.
    terminal = await runtime.exec_stream(
        container, ["sh", "-c", f"tty; read x; {SIZE}; sleep 0.3"], tty=True, stdin=True
    )
    await terminal.resize(100, 40)
    os.write(terminal.stdin, b"\n")
    assert (await output(terminal)).split() == [b"/dev/pts/0", b"40", b"100"]
    await terminal.close()
    absent = await runtime.exec_stream(container, ["nothing"], tty=False, stdin=False)
    if daemon.name == "cri-o":
        # An outcome like that of any command, with the reason among its output.
        async with asyncio.timeout(20):
            # runc, crun
            assert await absent.wait() in (255, 1)
        assert re.search(b"executable file .*not found", os.read(absent.stderr, 65_536))
    else:
        with pytest.raises(RuntimeFailure, match="executable file not found"):
            await absent.wait()
    await absent.close()


async def test_a_client_is_attached_and_a_port_is_dialled(
    runtime: CriRuntime, tmp_path: Path
) -> None:
    sandbox = await pod(runtime, tmp_path)
    # The program waits at the end: containerd may drop what one writes just before it ends.
    script = "read line; sleep 0.3; echo got $line; read line; exit 5"
    container = await started(runtime, sandbox, shell(script, stdin=True))
    attached = await runtime.attach(container, stdin=True)
    os.write(attached.stdin, b"it\n")
    os.set_blocking(attached.stdout, True)
    assert await asyncio.to_thread(os.read, attached.stdout, 100) == b"got it\n"
    os.write(attached.stdin, b"\n")
    async with asyncio.timeout(20):
        assert await attached.wait() == 5
    await attached.close()
    server = await started(runtime, sandbox, shell("echo hi | nc -l -p 8080", "server"))
    async with asyncio.timeout(10):
        while True:
            try:
                descriptor = await runtime.dial(sandbox.id, 8080)
                break
            except RuntimeFailure:
                assert (await runtime.container(server)).state is RunState.RUNNING
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    assert await reader.readline() == b"hi\n"
    writer.close()
    with pytest.raises(RuntimeFailure, match="localhost:9 inside the pod: Connection refused"):
        await runtime.dial(sandbox.id, 9)


async def test_pods_outlive_the_agent_and_the_daemon(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path
) -> None:
    sandbox = await pod(runtime, tmp_path)
    container = await started(runtime, sandbox, shell(SLEEP))
    before = await runtime.container(container)
    again = await connected(daemon, tmp_path)
    assert [each.id for each in await again.sandboxes()] == [sandbox.id]
    assert await again.containers() == [before]
    watch = aiter(again.watch())
    ending = await started(
        again, sandbox, shell("until [ -e /end ]; do sleep 0.1; done; exit 6", "ending")
    )
    process = (await again.container(ending)).pid
    assert [(await anext(watch)).type] == ["started"]
    daemon.kill()
    await asyncio.to_thread(end_of, process)
    with pytest.raises(RuntimeFailure, match="start the container runtime"):
        await again.containers()
    with pytest.raises(StopAsyncIteration):
        await anext(watch)
    await asyncio.to_thread(daemon.start)
    async with asyncio.timeout(20):
        while True:
            try:
                listed = {each.id: each for each in await again.containers()}
                break
            except RuntimeFailure:
                await SystemClock().sleep(0.1)
    assert listed[container] == before
    # It has ended while the daemon was dead.
    assert await ended(again, ending) == (6, "Error")
    assert (await again.execute(container, ["echo", "alive"], 10)).stdout == b"alive\n"
    await again.close()


def end_of(process: int) -> None:
    """Have a program end that waits for a file, and return when it has."""
    with open_process(process) as handle:
        Path(f"/proc/{process}/root/end").touch()
        select.select([handle], [], [], 20)


@contextlib.contextmanager
def open_process(process: int) -> Iterator[int]:
    handle = os.pidfd_open(process)
    try:
        yield handle
    finally:
        os.close(handle)


async def test_a_long_log_is_rotated(
    runtime: CriRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_rotation, "MOST_BYTES", 1000)
    container = await started(
        runtime,
        await pod(runtime, tmp_path),
        shell(f"{LINES}; read x; echo last; read x", stdin=True),
    )
    log = Path((await runtime.container(container)).log_path)
    attached = await runtime.attach(container, stdin=True)
    async with asyncio.timeout(20):
        # A rotation in the middle could move the last line to a rotated file.
        while "line 100" not in text_of(str(log)):
            await SystemClock().sleep(0.05)
        while not [*log.parent.glob("0.log.*")]:
            await runtime.poll()
    os.write(attached.stdin, b"\n")
    async with asyncio.timeout(20):
        while "last" not in text_of(str(log)):
            await runtime.poll()
    assert "line 100" in next(log.parent.glob("0.log.*")).read_text()
    await attached.close()
    await runtime.remove_container(container)
    assert [*log.parent.iterdir()] == []


def pull_secret(host: str, username: str, password: str) -> Secret:
    auths = {"auths": {host: {"username": username, "password": password}}}
    data = {".dockerconfigjson": base64.b64encode(msgspec.json.encode(auths)).decode()}
    return Secret(type="kubernetes.io/dockerconfigjson", data=data)


async def test_images_are_pulled_with_the_credentials_of_the_pod(
    daemon: RuntimeDaemon, tmp_path: Path
) -> None:
    connection = CriConnection(daemon.socket)
    service = CriImageService(connection, ImageMapping.parse(()), tmp_path / "pulls", SystemClock())
    pulls: list[str] = []

    async def resolve(name: str, policy: str, *secrets: Secret) -> str:
        return (await service.resolve(name, policy, secrets, lambda: pulls.append(name))).user

    async with registry() as serving:
        serving.account = ("me", "secret")
        built = images.build({"file": b"x"}, config={"User": "1000"})
        name = serving.push("team/app:1", built)
        with pytest.raises(ImageFailure, match="not present with pull policy of Never"):
            await resolve(name, "Never")
        with pytest.raises(ImageFailure, match="failed to pull image"):
            await resolve(name, "IfNotPresent")
        mine = pull_secret(serving.host, "me", "secret")
        assert await resolve(name, "IfNotPresent", mine) == "1000"
        assert await resolve(name, "IfNotPresent", mine) == "1000"
        assert len(pulls) == 2
        # Another tenant's pod must not use it.
        with pytest.raises(ImageFailure, match="failed to pull image"):
            await resolve(name, "IfNotPresent")
    await service.refresh()
    assert any(name in each.names for each in service.in_status())
    with pytest.raises(ImageFailure, match="needs kedge's own runtime"):
        await resolve("host", "IfNotPresent")
    await connection.close()


async def test_images_that_the_node_has_pulled_are_collected_unless_in_use(
    daemon: RuntimeDaemon, runtime: CriRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_service, "_disk", lambda _: DiskSpace(capacity=1000, available=1))
    clock = FakeClock()
    service = CriImageService(runtime.connection, ImageMapping.parse(()), tmp_path / "pulls", clock)
    async with registry() as serving:
        used = serving.push("team/used:1", container_daemon.box(b"used"))
        unused = serving.push("team/unused:1", container_daemon.box(b"unused"))
        for name in (used, unused):
            await service.resolve(name, "IfNotPresent", (), lambda: None)
    image = await service.resolve(used, "Never", (), lambda: None)
    spec = ContainerConfig(
        name="main", image=image.id, image_name=used, command=("/bin/sh", "-c", SLEEP)
    )
    await started(runtime, await pod(runtime, tmp_path), spec)
    await clock.advance(3600)
    await service.collect(GarbageThresholds())
    await service.refresh()
    kept = {name for each in service.in_status() for name in each.names}
    assert {used, BOX, PAUSE} <= kept
    assert unused not in kept
