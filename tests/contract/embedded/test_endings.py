"""How containers end."""

import asyncio
from pathlib import Path

import pytest
from tests.contract.embedded.workbench import (
    GROUPS,
    Bench,
    needs_root,
    until_said,
)

from kedge.node.images.store import NoSuchImage
from kedge.node.runtime.runtime import (
    ContainerLimits,
    RunState,
    RuntimeFailure,
)

pytestmark = needs_root


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
    assert (ended.state, ended.exit_code) == (RunState.EXITED, 128)
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
        "/usr/bin/python3", "-c", greedy, resources=ContainerLimits(memory_limit=48 << 20)
    )
    assert (ended.exit_code, ended.reason) == (137, "OOMKilled")


async def test_an_oom_killed_child_is_told_while_the_container_lives_on(bench: Bench) -> None:
    greedy = "b = bytearray(200 << 20)"
    container = await bench.create(
        await bench.pod(),
        "sh",
        "-c",
        f"/usr/bin/python3 -c '{greedy}'; sleep 1000",
        resources=ContainerLimits(memory_limit=48 << 20),
    )
    watch = aiter(bench.runtime.watch())
    first = asyncio.ensure_future(anext(watch))
    await bench.runtime.sandboxes()
    await bench.runtime.start_container(container)
    async with asyncio.timeout(20):
        assert [(await first).type, (await anext(watch)).type] == ["started", "oom"]
    assert (await bench.runtime.container(container)).state is RunState.RUNNING


async def test_a_fork_bomb_stays_inside_its_limit(bench: Bench) -> None:
    script = "for i in $(seq 60); do sleep 100 & done; echo alive"
    ended, said = await bench.run("sh", "-c", script, resources=ContainerLimits(pids_limit=20))
    assert "Cannot fork" in said or "alive" not in said
    assert ended.exit_code != 0


async def test_limits_are_those_of_the_control_group_and_can_be_changed(bench: Bench) -> None:
    container = await bench.start(
        await bench.pod(),
        "sleep",
        "1000",
        resources=ContainerLimits(
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
        container, ContainerLimits(cpu_quota=20_000, memory_limit=128 << 20)
    )
    assert limits() == ("20000", str(128 << 20), "100")
