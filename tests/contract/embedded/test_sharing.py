"""What the containers of a pod share."""

import asyncio
import os
import socket

import pytest
from tests.contract.embedded.workbench import (
    Bench,
    gone,
    needs_root,
    until_said,
)

from kedge.node.runtime.runtime import (
    ContainerSecurity,
    PidMode,
    RuntimeFailure,
)

pytestmark = needs_root


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
    security = ContainerSecurity(pid=PidMode.POD)
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
    security = ContainerSecurity(pid=PidMode.TARGET, pid_target=target)
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
        security=ContainerSecurity(pid=PidMode.HOST),
    )
    kinds = ("net", "ipc", "pid", "uts")
    assert said.split() == [os.readlink(f"/proc/self/ns/{kind}") for kind in kinds]


async def test_processes_that_a_container_leaves_behind_end_with_it(bench: Bench) -> None:
    sandbox = await bench.pod(host_pid=True)
    script = "setsid sleep 98765 & sleep 0.2; echo $!"
    ended = await bench.ended(
        await bench.start(sandbox, "sh", "-c", script, security=ContainerSecurity(pid=PidMode.HOST))
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
