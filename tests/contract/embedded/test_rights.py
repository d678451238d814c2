"""What containers may do."""

import json
from pathlib import Path

import pytest
from tests.contract.embedded.workbench import Bench, needs_root

from kedge.node.runtime.runtime import (
    ContainerDevice,
    ContainerSecurity,
    RuntimeFailure,
)
from kedge.supervisor.kernel import cgroups, devices

pytestmark = needs_root


async def status_of(bench: Bench, security: ContainerSecurity) -> dict[str, str]:
    said = await bench.shell("cat /proc/self/status", security=security)
    return {name: value.strip() for name, _, value in (x.partition(":") for x in said.split("\n"))}


async def test_the_default_is_the_well_known_capabilities_behind_a_filter(bench: Bench) -> None:
    status = await status_of(bench, ContainerSecurity())
    assert status["CapEff"] == status["CapBnd"] == "00000000a80425fb"
    assert status["CapInh"] == status["CapAmb"] == "0" * 16
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "0")


async def test_users_groups_and_promises_are_kept(bench: Bench) -> None:
    security = ContainerSecurity(
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
    security = ContainerSecurity(
        add_capabilities=("NET_ADMIN",), drop_capabilities=("CAP_MKNOD", "KILL")
    )
    status = await status_of(bench, security)
    assert int(status["CapEff"], 16) == 0xA80425FB - (1 << 27) - (1 << 5) + (1 << 12)


async def test_the_privileged_may_do_everything(bench: Bench) -> None:
    status = await status_of(bench, ContainerSecurity(privileged=True))
    assert status["Seccomp"] == "0"
    script = (
        "mount -t tmpfs x /mnt && echo mounted; test -e /dev/kmsg && echo devices; touch /sys/x"
    )
    said = await bench.shell(script, security=ContainerSecurity(privileged=True))
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
    said = await bench.shell(
        "mkdir /tmp/x; echo done", security=ContainerSecurity(seccomp=str(path))
    )
    assert "Permission denied" in said
    assert "done" in said
    with pytest.raises(RuntimeFailure, match="cannot load seccomp profile"):
        await bench.create(
            await bench.pod("other"), "true", security=ContainerSecurity(seccomp="/no/profile")
        )


async def test_a_device_that_is_given_can_be_opened(bench: Bench) -> None:
    devices = [ContainerDevice(container_path="/dev/mine", host_path="/dev/fuse", permissions="r")]
    script = "exec 3< /dev/mine && echo opened; echo x > /dev/mine"
    said = await bench.shell(script, devices=devices)
    assert "opened" in said
    assert "not permitted" in said


async def test_the_second_version_s_program_forbids_devices_as_the_first_version_s_rules_do(
    bench: Bench,
) -> None:
    container = await bench.start(
        await bench.pod(), "sleep", "1000", security=ContainerSecurity(privileged=True)
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
