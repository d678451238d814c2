"""What containers see."""

import os
from pathlib import Path

import pytest
from tests.contract.embedded.workbench import Bench, needs_root, small_root

from kedge.node.images.image import LocalImage
from kedge.node.runtime.runtime import (
    ContainerMount,
    ContainerSecurity,
    DnsConfig,
    RuntimeFailure,
)

pytestmark = needs_root


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
    dns = DnsConfig(servers=["10.0.0.10"], searches=["default.svc", "svc"], options=["ndots:5"])
    said = await bench.shell("cat /etc/resolv.conf /etc/hostname", dns=dns, hostname="mine")
    expected = "search default.svc svc\nnameserver 10.0.0.10\noptions ndots:5\nmine\n"
    assert said == expected


async def test_mounts_appear_where_nothing_was(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "inside").write_text("hello")
    (tmp_path / "file").write_text("single")
    binds = [
        ContainerMount(container_path="/new/place", host_path=str(tmp_path / "data")),
        ContainerMount(container_path="/new/ro", host_path=str(tmp_path / "data"), read_only=True),
        ContainerMount(container_path="/other/file.txt", host_path=str(tmp_path / "file")),
    ]
    said = await bench.shell(
        "cat /new/place/inside /other/file.txt; echo back > /new/place/out; echo no > /new/ro/out",
        mounts=binds,
    )
    assert "hellosingle" in said
    assert "Read-only file system" in said
    assert (tmp_path / "data" / "out").read_text() == "back\n"


async def test_a_mount_that_cannot_be_made_says_which(bench: Bench) -> None:
    binds = [ContainerMount(container_path="/there", host_path="/not/there")]
    container = await bench.create(await bench.pod(), "true", mounts=binds)
    message = 'failed to mount "/not/there" at "/there": no such file or directory'
    with pytest.raises(RuntimeFailure, match=message):
        await bench.runtime.start_container(container)


async def test_a_part_of_a_mount_is_found_inside_of_it_when_the_container_starts(
    bench: Bench, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    (volume / "a" / "part").mkdir(parents=True)
    (volume / "a" / "part" / "mine").touch()
    (volume / "link").symlink_to("a/part")
    (tmp_path / "outside" / "part").mkdir(parents=True)
    binds = [
        ContainerMount(container_path="/whole", host_path=str(volume), part="a/part"),
        ContainerMount(container_path="/linked", host_path=str(volume), part="link"),
        ContainerMount(container_path="/file", host_path=str(volume), part="a/part/mine"),
    ]
    assert await bench.shell("ls /whole /linked; test -f /file", mounts=binds) == (
        "/linked:\nmine\n\n/whole:\nmine\n"
    )
    container = await bench.create(await bench.pod("late"), "true", mounts=binds[:1])
    # As another container of the pod may do at any moment.
    (volume / "a").rename(volume / "b")
    (volume / "a").symlink_to(tmp_path / "outside")
    with pytest.raises(RuntimeFailure, match=r'failed to mount ".*" at "/whole": invalid cross'):
        await bench.runtime.start_container(container)


async def test_links_of_an_image_do_not_lead_out_of_it(bench: Bench, tmp_path: Path) -> None:
    base = small_root(tmp_path / "base", "/bin/sh", "/bin/cat", "/bin/ls")
    layer = tmp_path / "layer"
    (layer / "volumes").mkdir(parents=True)
    (layer / "volumes" / "escape").symlink_to(tmp_path / "outside")
    (layer / "hello").write_text("from the layer")
    bench.images.known["small"] = LocalImage("small", "small", layers=(layer, base))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mounted").touch()
    said = await bench.shell(
        "cat /hello; ls /volumes/escape/; ls /",
        image="small",
        mounts=[ContainerMount(container_path="/volumes/escape", host_path=str(tmp_path / "data"))],
    )
    assert said.startswith("from the layermounted\n")
    assert "hello" in said.split()
    assert not (tmp_path / "outside").exists()


async def test_a_read_only_root_is_read_only_but_for_its_volumes(
    bench: Bench, tmp_path: Path
) -> None:
    said = await bench.shell(
        "touch /x; touch /data/y && echo wrote",
        security=ContainerSecurity(read_only_root=True),
        mounts=[ContainerMount(container_path="/data", host_path=str(tmp_path))],
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
