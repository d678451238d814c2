"""Ways out of a container that the well-known runtimes once had, tried on the embedded one."""

import asyncio
import contextlib
import os
import shutil
import signal
import stat
import threading
from pathlib import Path

import pytest
from tests.contract.embedded.workbench import Bench, gone, needs_root, small_root, until_said

from kedge.node.images.image import LocalImage
from kedge.node.runtime.runtime import ContainerMount, ContainerSecurity, PidMode, RuntimeFailure
from kedge.supervisor.kernel import processes
from kedge.supervisor.rootfs import proc_sys

pytestmark = needs_root

TOOLS = ("/bin/sh", "/bin/cat", "/bin/sleep", "/bin/ls", "/bin/ln", "/bin/mkdir")
NUMBERS = range(3, 24)
"""What the descriptors of a supervisor are counted by."""
SECRET = "of the machine"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return small_root(tmp_path / "image", *TOOLS)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A directory that a container may write to; the test does it in its place."""
    directory = tmp_path / "volume"
    directory.mkdir()
    return directory


def add_image(bench: Bench, root: Path) -> None:
    bench.images.known["small"] = LocalImage("small", "small", layers=(root,))


async def tried(bench: Bench, container: str, *argv: str) -> bytes:
    """What a command in a container says, also if it is refused."""
    try:
        done = await bench.runtime.execute(container, argv, 10)
    except RuntimeFailure as failure:
        return str(failure).encode()
    return done.stdout + done.stderr


async def started(bench: Bench, *argv: str, **more: object) -> str:
    """What a container that may not even start says."""
    try:
        return (await bench.run(*argv, **more))[1]
    except RuntimeFailure as failure:
        return str(failure)


async def test_a_command_does_not_start_in_a_directory_of_the_machine(
    bench: Bench, root: Path, volume: Path
) -> None:
    """CVE-2024-21626: the working directory is exchanged for a descriptor of the runtime."""
    (bench.directory / "secret").write_text(SECRET)
    add_image(bench, root)
    work = volume / "work"
    work.mkdir()
    mount = ContainerMount(host_path=str(volume), container_path="/volume")
    more = {"image": "small", "mounts": [mount], "working_dir": "/volume/work"}
    container = await bench.start(await bench.pod(), "sleep", "1000", **more)
    assert b"volume" in await tried(bench, container, "ls", "/")
    work.rmdir()
    for target in (*(f"/proc/self/fd/{number}" for number in NUMBERS), "/proc/self/cwd"):
        work.symlink_to(target)
        said = await tried(bench, container, "cat", "../secret", "secret")
        assert SECRET.encode() not in said
        assert b"working directory" in said
        work.unlink()


async def test_a_container_does_not_start_in_a_directory_of_the_machine(
    bench: Bench, root: Path
) -> None:
    """CVE-2024-21626: the image's working directory is a descriptor of the runtime."""
    (bench.directory / "secret").write_text(SECRET)
    add_image(bench, root)
    for number in NUMBERS:
        more = {"image": "small", "working_dir": f"/proc/self/fd/{number}"}
        assert SECRET not in await started(bench, "cat", "../secret", **more)


async def test_a_program_of_the_machine_cannot_be_run(bench: Bench, root: Path) -> None:
    """The image's program is below a descriptor of the runtime."""
    shutil.copy("/bin/echo", bench.directory / "program")
    add_image(bench, root)
    container = await bench.start(await bench.pod(), "sleep", "1000", image="small")
    for number in NUMBERS:
        path = f"/proc/self/fd/{number}/../program"
        assert await started(bench, path, "escaped", image="small") != "escaped\n"
        assert await tried(bench, container, path, "escaped") != b"escaped\n"


async def test_the_interpreter_of_the_supervisor_cannot_be_run(bench: Bench) -> None:
    """CVE-2019-5736: the program is a link to /proc/self/exe."""
    container = await bench.start(
        await bench.pod(), "sh", "-c", "ln -s /proc/self/exe /tmp/link; exec sleep 1000"
    )
    for path in ("/proc/self/exe", "/tmp/link", "/proc/thread-self/exe"):
        said = await tried(bench, container, path, "-c", "print('escaped')")
        assert b"escaped" not in said
        assert said.startswith(b"exec: ")
    first = await started(bench, "/proc/self/exe", "-c", "print('escaped')")
    assert "magic link" in first


async def test_the_interpreter_of_the_supervisor_cannot_be_written_to(
    bench: Bench, volume: Path
) -> None:
    """CVE-2019-5736: a script whose interpreter is /proc/self/exe gets hold of it."""
    script = volume / "script"
    script.write_text(
        "#!/proc/self/exe\n"
        "import fcntl, os\n"
        "print(os.readlink('/proc/self/exe'))\n"
        "print(fcntl.fcntl(os.open('/proc/self/exe', os.O_RDONLY), fcntl.F_GET_SEALS))\n"
    )
    script.chmod(0o755)
    mount = ContainerMount(host_path=str(volume), container_path="/volume")
    container = await bench.start(await bench.pod(), "sleep", "1000", mounts=[mount])
    name, seals = (await tried(bench, container, "/volume/script")).decode().splitlines()
    assert name.startswith("/memfd:")
    assert int(seals) == 0xF
    own = os.readlink(f"/proc/{bench.runtime.supervisor}/exe")
    assert own.startswith("/memfd:")


async def test_a_mask_is_the_machine_s_own_null_device(bench: Bench, volume: Path) -> None:
    """CVE-2025-31133: a volume at /dev has a link to a file of the machine for the null device."""
    target = bench.directory / "target"
    target.write_text(SECRET)
    (volume / "null").symlink_to(target)
    (volume / "shm").mkdir()
    mounts = [ContainerMount(host_path=str(volume), container_path="/dev")]
    script = "cat /proc/keys /proc/timer_list; echo x > /proc/keys"
    said = await started(bench, "sh", "-c", script, mounts=mounts)
    assert SECRET not in said
    assert target.read_text() == SECRET


@pytest.mark.parametrize("name", ["proc", "sys", "dev"])
@pytest.mark.parametrize("other", ["link", "file"])
async def test_what_the_kernel_shows_is_not_mounted_elsewhere(
    bench: Bench, root: Path, name: str, other: str
) -> None:
    """CVE-2019-19921, CVE-2023-27561: a link in its place leaves masks off."""
    (root / "elsewhere").mkdir()
    if other == "link":
        (root / name).symlink_to("/elsewhere")
    else:
        (root / name).write_text("")
    add_image(bench, root)
    said = await started(bench, "ls", "/elsewhere", image="small")
    assert f'"/{name}" of the image is not a directory' in said


@pytest.mark.parametrize(
    "target", ["/proc", "/proc/sys", "/proc/self/attr", "/proc/keys", "/elsewhere/sys/kernel"]
)
async def test_volumes_are_not_mounted_over_what_the_kernel_shows(
    bench: Bench, root: Path, volume: Path, target: str
) -> None:
    """CVE-2019-16884, CVE-2023-28642: what is mounted over /proc leaves masks and labels off."""
    (root / "elsewhere").symlink_to("/proc")
    add_image(bench, root)
    mounts = [ContainerMount(host_path=str(volume), container_path=target)]
    said = await started(bench, "ls", "/", image="small", mounts=mounts)
    assert "is inside /proc" in said


async def test_files_that_describe_the_machine_may_be_replaced(
    bench: Bench, root: Path, volume: Path
) -> None:
    """What runc allows too: lxcfs shows a container its own limits there."""
    (volume / "meminfo").write_text("MemTotal: 1 kB")
    add_image(bench, root)
    mounts = [ContainerMount(host_path=str(volume / "meminfo"), container_path="/proc/meminfo")]
    said = await started(bench, "cat", "/proc/meminfo", image="small", mounts=mounts)
    assert said == "MemTotal: 1 kB\n"


async def test_a_terminal_is_the_container_s_own(bench: Bench, volume: Path) -> None:
    """CVE-2025-52565: a volume at /dev or below it says what the console is."""
    target = bench.directory / "target"
    target.write_text(SECRET)
    (volume / "ptmx").symlink_to("/inside")
    (volume / "0").symlink_to("/inside")
    mounts = [
        ContainerMount(host_path=str(volume), container_path="/dev/pts"),
        ContainerMount(host_path=str(target), container_path="/inside"),
    ]
    script = "cat /dev/console < /dev/null | cat & sleep 0.1; test -t 0 && echo a terminal"
    said = await started(bench, "sh", "-c", script, tty=True, mounts=mounts)
    assert SECRET not in said
    assert "a terminal" in said
    assert stat.S_ISREG(target.stat().st_mode)
    assert target.read_text() == SECRET


async def test_the_first_process_of_a_pod_leads_nowhere(bench: Bench) -> None:
    """With CAP_SYS_PTRACE a container is every process that it sees."""
    pod = await bench.pod(shared_pid=True)
    security = ContainerSecurity(pid=PidMode.POD, add_capabilities=("SYS_PTRACE",))
    script = (
        "cat /proc/1/comm; ls -A /proc/1/root/; ls /proc/1/fd | wc -l;"
        "grep -E '^(Uid|CapPrm|CapBnd|NoNewPrivs):' /proc/1/status;"
        "for kind in net ipc uts; do "
        "test $(readlink /proc/1/ns/$kind) = $(readlink /proc/self/ns/$kind) || echo other; done"
    )
    container = await bench.start(pod, "sh", "-c", script, security=security)
    said = bench.said(await bench.ended(container)).splitlines()
    assert said[:2] == ["pause", "0"]
    facts = {name: value.split() for name, _, value in (line.partition(":") for line in said[2:])}
    assert facts == {
        "Uid": ["65535"] * 4,
        "CapPrm": ["0" * 16],
        "CapBnd": ["0" * 16],
        "NoNewPrivs": ["1"],
    }


@pytest.mark.parametrize("name", ["net.//.kernel.core_pattern", "fs.mqueue.//.//.kernel.panic"])
async def test_a_setting_of_the_machine_cannot_be_named(bench: Bench, name: str) -> None:
    """CVE-2022-0811: a setting of the pod that turns into one of the machine."""
    with pytest.raises(RuntimeFailure, match="is not a name"):
        await bench.pod(sysctls={name: "0"})


async def test_a_target_that_is_exchanged_all_the_time_stays_inside(
    bench: Bench, root: Path, volume: Path, tmp_path: Path
) -> None:
    """CVE-2021-30465: while a volume is mounted below another one, its target becomes a link."""
    add_image(bench, root)
    (tmp_path / "below").mkdir()
    mounts = [
        ContainerMount(host_path=str(volume), container_path="/volume"),
        ContainerMount(host_path=str(tmp_path / "below"), container_path="/volume/target/deep"),
    ]
    over = threading.Event()

    def exchange() -> None:
        (volume / "first" / "deep").mkdir(parents=True)
        (volume / "second").symlink_to("/" + "../" * 20)
        while not over.is_set():
            for name in ("first", "second"):
                # The runtime may have made what it found to be missing.
                shutil.rmtree(volume / "target", ignore_errors=True)
                with contextlib.suppress(OSError):
                    os.rename(volume / name, volume / "target")
                    os.rename(volume / "target", volume / name)

    exchanging = threading.Thread(target=exchange)
    exchanging.start()
    try:
        expected = {"bin", "dev", "etc", "lib", "lib64", "proc", "sys", "volume", "deep"}
        for _ in range(20):
            said = await started(bench, "ls", "/", image="small", mounts=mounts)
            assert set(said.split()) <= expected or said.startswith("failed to mount")
    finally:
        over.set()
        exchanging.join()
    assert not await asyncio.to_thread(os.path.exists, "/deep")


async def test_the_end_of_the_launcher_is_the_end_of_the_supervisor(bench: Bench) -> None:
    container = await bench.start(await bench.pod(), "sleep", "1000")
    supervisor = bench.runtime.supervisor
    launcher = next(
        pid for pid in processes.tree(supervisor) if processes_name(pid) == "kedge-launch"
    )
    os.kill(launcher, signal.SIGKILL)
    await gone(supervisor)
    lost = await bench.runtime.container(container)
    assert lost.reason == "ContainerStatusUnknown"
    assert await bench.shell("echo again") == "again\n"


def processes_name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.mark.parametrize("tty", [False, True])
async def test_the_null_device_of_the_machine_cannot_be_changed(bench: Bench, tty: bool) -> None:
    """Standard input and masks are made of it; root in a container is root on the machine."""
    before = os.stat("/dev/null")
    paths = " ".join(f'"{path}"' for path in proc_sys.MASKED)
    script = (
        f"for file in /proc/self/fd/0 /dev/stdin {paths}; do chmod 667 $file; chown 7 $file; "
        "touch -d @7 $file; done; cat < /dev/null && echo > /dev/null && echo usable; "
        "exec sleep 1000"
    )
    try:
        container = await bench.start(await bench.pod(), "sh", "-c", script, tty=tty)
        await until_said(bench, container, "usable")
        await tried(bench, container, "sh", "-c", script.replace("exec sleep 1000", ":"))
        after = os.stat("/dev/null")
    finally:
        os.chmod("/dev/null", stat.S_IMODE(before.st_mode))
        os.chown("/dev/null", before.st_uid, before.st_gid)
        os.utime("/dev/null", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (after.st_mode, after.st_uid) == (before.st_mode, before.st_uid)
    assert after.st_mtime > 7
