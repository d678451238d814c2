"""Pods with users of their own: who they are on the machine, and what they reach of it."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.embedded.workbench import Bench, needs_root

from kedge.node.images.image import LocalImage
from kedge.node.images.oci import ImageConfig
from kedge.node.runtime.runtime import (
    ContainerDevice,
    ContainerMount,
    ContainerSecurity,
    PidMode,
    RuntimeFailure,
)
from kedge.supervisor.kernel import libc

pytestmark = needs_root

FIRST = 0x7F00_0000
MINE: dict[str, Any] = {"first_id": FIRST}


@pytest.fixture(autouse=True)
def possible(bench: Bench) -> None:
    if tuple(map(int, os.uname().release.split(".")[:2])) < (6, 3):
        pytest.skip("the kernel is older than 6.3 and has no id-mapped tmpfs")
    assert not bench.runtime.no_user_namespaces


async def test_root_in_the_pod_is_an_ordinary_user_of_the_machine(bench: Bench) -> None:
    pod = await bench.pod(**MINE)
    container = await bench.start(pod, "sleep", "1000")
    process = Path(f"/proc/{(await bench.runtime.container(container)).pid}")
    assert (process / "uid_map").read_text().split() == ["0", str(FIRST), "65536"]
    assert (process / "gid_map").read_text().split() == ["0", str(FIRST), "65536"]
    assert os.stat(process).st_uid == FIRST
    said = await bench.runtime.execute(container, ["sh", "-c", "id -u; cat /proc/1/uid_map"], 10)
    assert said.stdout.split() == [b"0", b"0", str(FIRST).encode(), b"65536"]
    await bench.runtime.remove_sandbox(pod.id)


async def test_the_user_namespace_owns_all_but_the_pid_namespace(bench: Bench) -> None:
    """It takes NS_GET_USERNS to ask."""
    script = (
        "import fcntl, os\n"
        "own = os.stat('/proc/self/ns/user').st_ino\n"
        "for kind in ('net', 'ipc', 'uts', 'mnt', 'cgroup'):\n"
        "    owner = fcntl.ioctl(os.open('/proc/self/ns/' + kind, os.O_RDONLY), 0xb701)\n"
        "    print(kind, os.fstat(owner).st_ino == own)\n"
    )
    _, said = await bench.run("python3", "-c", script, **MINE)
    assert said.splitlines() == [f"{kind} True" for kind in ("net", "ipc", "uts", "mnt", "cgroup")]


def core_pattern() -> str:
    """The program that the machine runs when a process crashes."""
    return Path("/proc/sys/kernel/core_pattern").read_text()


@pytest.mark.parametrize("privileged", [False, True])
async def test_nothing_of_the_kernel_is_writable(bench: Bench, privileged: bool) -> None:
    before = core_pattern()
    script = (
        "for file in /proc/sys/kernel/core_pattern /proc/sys/vm/drop_caches /proc/sysrq-trigger"
        " /sys/kernel/uevent_helper /sys/fs/cgroup/memory/release_agent /proc/1/oom_score_adj; do"
        ' echo 1 2>/dev/null > "$file" && echo "$file"; done; mknod /n c 1 1; mount -t ext4 x /mnt'
    )
    security = ContainerSecurity(
        privileged=privileged, unmasked_proc=True, add_capabilities=() if privileged else ("ALL",)
    )
    # Its own process is the container's to change, for better or worse.
    said = await bench.shell(script, security=security, **MINE)
    files = [line for line in said.splitlines() if line.startswith("/")]
    assert files == ["/proc/1/oom_score_adj"]
    assert "mknod: /n: Operation not permitted" in said
    assert core_pattern() == before


async def test_files_of_volumes_belong_to_the_same_ids_inside_and_on_the_machine(
    bench: Bench, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o777)
    volume.chmod(0o777)
    (volume / "given").write_text("x")
    os.chown(volume / "given", 1000, 2000)
    mount = ContainerMount(container_path="/v", host_path=str(volume))
    said = await bench.shell("stat -c %u:%g /v /v/given; touch /v/mine", mounts=(mount,), **MINE)
    assert said.split() == ["0:0", "1000:2000"]
    status = (volume / "mine").stat()
    assert (status.st_uid, status.st_gid) == (0, 0)
    security = ContainerSecurity(user=1000, group=3000)
    await bench.shell("touch /v/other", mounts=(mount,), security=security, **MINE)
    status = (volume / "other").stat()
    assert (status.st_uid, status.st_gid) == (1000, 3000)


async def test_what_is_written_to_the_root_belongs_to_the_pods_range(bench: Bench) -> None:
    pod = await bench.pod(**MINE)
    script = "touch /mine; chown 7:8 /mine; chmod u+s /mine; stat -c %u:%g / /etc /mine /new"
    container = await bench.start(pod, "sh", "-c", script, working_dir="/new/directory")
    said = bench.said(await bench.ended(container))
    assert said.split() == ["0:0", "0:0", "7:8", "0:0"]
    status = (bench.directory / "runtime/containers" / container / "upper/mine").stat()
    assert (status.st_uid, status.st_gid) == (FIRST + 7, FIRST + 8)
    await bench.runtime.remove_sandbox(pod.id)


def layers_of(directory: Path) -> list[Path]:
    """Two layers of an image, each with a file of its own name that belongs to 5:6."""
    layers = [directory / "upper", directory / "lower"]
    for layer in layers:
        layer.mkdir()
        (layer / layer.name).write_text(layer.name)
        os.chown(layer / layer.name, 5, 6)
    return layers


def programs() -> list[ContainerMount]:
    """The machine's programs, for an image that has none."""
    return [
        ContainerMount(container_path=path, host_path=path, read_only=True)
        for path in ("/bin", "/lib", "/lib64", "/usr")
        if os.path.exists(path)
    ]


async def test_images_of_layers_have_the_owners_that_they_say(bench: Bench, tmp_path: Path) -> None:
    layers = layers_of(tmp_path)
    image = LocalImage("layers", "layers", config=ImageConfig(), layers=tuple(layers))
    bench.images.known["layers"] = image
    script = "stat -c %u:%g /upper /lower; cat /lower; echo; echo changed > /lower; cat /lower"
    said = await bench.shell(script, image="layers", mounts=programs(), **MINE)
    assert said.split() == ["5:6", "5:6", "lower", "changed"]
    assert (layers[1] / "lower").read_text() == "lower"


async def test_a_file_system_that_cannot_be_mapped_is_refused(bench: Bench) -> None:
    pod = await bench.pod(**MINE)
    mount = ContainerMount(container_path="/v", host_path="/sys/kernel")
    with pytest.raises(RuntimeFailure, match=r'failed to mount "/sys/kernel" at "/v": .*IDMAP'):
        await bench.start(pod, "true", mounts=(mount,))
    await bench.runtime.remove_sandbox(pod.id)


async def test_read_only_mounts_stay_read_only_for_a_container_that_may_mount(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "volume").mkdir()
    mount = ContainerMount(container_path="/v", host_path=str(tmp_path / "volume"), read_only=True)
    script = (
        "mount -t tmpfs x /mnt && echo mounted; mount -o remount,bind,rw /v; touch /v/x;"
        " umount /v; mount -o remount,bind,rw /; touch /x; ls -d /x /v/x; umount -l /proc/sys;"
        " umount -l /proc/keys; umount -l /sys/firmware;"
        " grep -c -e ' /proc/sys ' -e ' /proc/keys ' /proc/mounts"
    )
    security = ContainerSecurity(
        add_capabilities=("SYS_ADMIN",), seccomp="Unconfined", read_only_root=True
    )
    said = await bench.shell(script, mounts=(mount,), security=security, **MINE)
    assert "mounted" in said
    assert "/x\n" not in said
    assert said.endswith("\n2\n"), "the masks are still mounted"
    assert list((tmp_path / "volume").iterdir()) == []


async def test_shared_memory_queues_and_settings_are_the_pods(bench: Bench) -> None:
    sysctls = {"kernel.shm_rmid_forced": "1", "net.ipv4.ip_unprivileged_port_start": "80"}
    pod = await bench.pod(sysctls=sysctls, **MINE)
    script = (
        "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start;"
        " touch /dev/shm/one; stat -c %u /dev/shm /dev/shm/one; ls -d /dev/mqueue; hostname;"
        " echo 81 > /proc/sys/net/ipv4/ip_unprivileged_port_start && echo own"
    )
    # The network is the pod's own, so its root may change what the masks do not cover.
    security = ContainerSecurity(unmasked_proc=True, add_capabilities=("NET_ADMIN",))
    first = await bench.start(pod, "sh", "-c", script, security=security)
    said = bench.said(await bench.ended(first))
    assert said.split() == ["1", "80", "0", "0", "/dev/mqueue", "pod", "own"]
    second = await bench.start(pod, "ls", "/dev/shm")
    assert bench.said(await bench.ended(second)).split() == ["one"]
    await bench.runtime.remove_sandbox(pod.id)


async def test_devices_that_are_given_can_be_used(bench: Bench) -> None:
    device = ContainerDevice(container_path="/dev/given", host_path="/dev/kmsg", permissions="r")
    script = "stat -c %u:%g:%t:%T /dev/given; echo x > /dev/null && head -c1 /dev/zero | wc -c"
    said = await bench.shell(script, devices=(device,), **MINE)
    assert said.split() == ["0:0:1:b", "1"]


def is_disk(path: str) -> bool:
    return stat.S_ISBLK(os.lstat(path).st_mode)


async def test_all_devices_of_the_privileged_stay_the_machines(bench: Bench) -> None:
    name = next((name for name in os.listdir("/dev") if is_disk(f"/dev/{name}")), "")
    if not name:
        pytest.skip("no block devices on this machine")
    script = f"stat -c %U /dev/{name}; head -c1 /dev/{name}"
    said = await bench.shell(script, security=ContainerSecurity(privileged=True), **MINE)
    assert said.startswith("nobody")
    assert "Permission denied" in said


async def test_terminals_belong_to_their_user(bench: Bench) -> None:
    pod = await bench.pod(**MINE)
    container = await bench.start(
        pod, "sleep", "1000", security=ContainerSecurity(user=1000, group=1000)
    )
    stream = await bench.runtime.exec_stream(
        container, ["sh", "-c", "echo got > $(tty); stat -c %u:%g $(tty)"], tty=True, stdin=True
    )
    await stream.wait()
    assert os.read(stream.stdout, 100).split() == [b"got", b"1000:5"]
    await stream.close()
    await bench.runtime.remove_sandbox(pod.id)


async def test_output_can_be_opened_again(bench: Bench) -> None:
    for security in (ContainerSecurity(), ContainerSecurity(user=1000)):
        said = await bench.shell("echo out > /dev/stdout", security=security, **MINE)
        assert said == "out\n"


async def test_containers_of_a_pod_share_processes_and_users(bench: Bench) -> None:
    pod = await bench.pod(shared_pid=True, **MINE)
    security = ContainerSecurity(pid=PidMode.POD, add_capabilities=("SYS_PTRACE",))
    await bench.start(pod, "sleep", "1234", security=security)
    script = "ps ax -o args | grep -c '^sleep 1234'; ls /proc/1/root; cat /proc/1/uid_map"
    seer = await bench.start(pod, "sh", "-c", script, security=security)
    said = bench.said(await bench.ended(seer))
    assert said.split()[0] == "1"
    assert "/proc/1/root': Permission denied" in said
    assert said.split()[-3:] == ["0", str(FIRST), "65536"]
    await bench.runtime.remove_sandbox(pod.id)


async def test_ids_and_mounts_that_cannot_be_are_refused(bench: Bench, tmp_path: Path) -> None:
    pod = await bench.pod(**MINE)
    why = "user 70000 does not exist in the pod's user namespace: it has the ids 0 to 65535"
    with pytest.raises(RuntimeFailure, match=why):
        await bench.create(pod, "true", security=ContainerSecurity(user=70_000))
    with pytest.raises(RuntimeFailure, match="group 65536 does not exist"):
        await bench.create(pod, "true", security=ContainerSecurity(groups=(65_536,)))
    shared = ContainerMount(
        container_path="/v", host_path=str(tmp_path), propagation="Bidirectional"
    )
    with pytest.raises(RuntimeFailure, match="do not propagate to the machine"):
        await bench.create(pod, "true", mounts=(shared,))
    await bench.runtime.remove_sandbox(pod.id)


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[Path]:
    """A directory with a mount below it that cannot be mapped."""
    below = tmp_path / "volume" / "below"
    below.mkdir(parents=True)
    libc.mount("proc", str(below), "proc")
    yield tmp_path / "volume"
    libc.unmount(str(below))


async def test_mounts_below_a_volume_come_along_unmapped_if_need_be(
    nested: Path, bench: Bench
) -> None:
    mount = ContainerMount(container_path="/v", host_path=str(nested))
    said = await bench.shell("stat -c %u /v /v/below", mounts=(mount,), **MINE)
    assert said.split() == ["0", "65534"]


async def test_a_command_is_in_the_pods_namespace_wherever_the_first_process_went(
    bench: Bench,
) -> None:
    """A container whose first process went on to a user namespace below, with a map of its own."""
    pod = await bench.pod(**MINE)
    security = ContainerSecurity(privileged=True)
    script = "unshare -Urm sh -c 'mount -t tmpfs x /dev/pts; touch /tmp/ready; sleep 1000'"
    container = await bench.start(pod, "sh", "-c", f"exec {script}", security=security)
    seen = ["sh", "-c", "until test -e /tmp/ready; do sleep 0.01; done; cat /proc/self/uid_map"]
    said = await bench.runtime.execute(container, seen, 10)
    assert said.stdout.split() == [b"0", str(FIRST).encode(), b"65536"]
    await bench.runtime.remove_sandbox(pod.id)
