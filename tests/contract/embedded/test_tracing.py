"""What a container that may trace others finds in the processes that enter its pid namespace."""

import asyncio

from tests.contract.embedded.workbench import Bench, needs_root, until_said

from kedge.node.runtime.runtime import ContainerSecurity, PidMode, RuntimeFailure

pytestmark = needs_root

MARK = "a-variable-of-another-pod"
# Looks at every process that comes up, again and again: its rights, its root, its descriptors and
# its memory.
SPY = """
import os, sys, time
mark = sys.argv[1][::-1].encode()
own = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "ipc")}
mine = int(next(l for l in open("/proc/self/status") if l.startswith("CapPrm")).split()[1], 16)
seen = set()

def look(pid):
    if "python" not in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
        return  # It is what it was to become.
    status = open(f"/proc/{pid}/status").read()
    held = int(next(l for l in status.splitlines() if l.startswith("CapPrm")).split()[1], 16)
    if held & ~mine:
        seen.add("more capabilities")
    for kind, link in own.items():
        if os.readlink(f"/proc/{pid}/ns/{kind}") != link:
            seen.add(f"another {kind} namespace")
    if os.path.exists(f"/proc/{pid}/root{sys.argv[3]}"):
        seen.add("the machine's files")
    for name in os.listdir(f"/proc/{pid}/fd"):
        to = os.readlink(f"/proc/{pid}/fd/{name}")
        if os.stat(f"/proc/{pid}/fd/{name}").st_rdev == os.makedev(1, 3):
            continue  # The null device, of a mount that has no name.
        if to.startswith("/") and not to.startswith(("/dev/", "/proc/")):
            seen.add(f"a descriptor of {to}")
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            if "[heap]" in line or (" rw-p " in line and " 00:00 0" in line):
                first, last = (int(each, 16) for each in line.split()[0].split("-"))
                memory.seek(first)
                if mark in memory.read(min(last - first, 1 << 24)):
                    seen.add("a variable of another pod")

print("ready", flush=True)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                look(name)
            except (OSError, StopIteration):
                pass
print(sorted(seen), flush=True)
"""


async def test_processes_that_enter_a_container_have_nothing_that_it_lacks(bench: Bench) -> None:
    """CVE-2016-9962, for a container with CAP_SYS_PTRACE."""
    other = await bench.pod("other")
    await bench.start(other, "sleep", "1000", env={"SECRET": MARK})
    pod = await bench.pod("spied", shared_pid=True)
    tracing = ContainerSecurity(pid=PidMode.POD, add_capabilities=("SYS_PTRACE",))
    lock = str(bench.directory / "runtime" / "supervisor.lock")
    argv = ("/usr/bin/python3", "-c", SPY, MARK[::-1], "4", lock)
    spy = await bench.start(pod, *argv, security=tracing)
    await until_said(bench, spy, "ready")
    async with asyncio.timeout(30):
        for _ in range(15):
            try:
                await bench.runtime.execute(spy, ["true"], 10)
            except RuntimeFailure:
                break  # The spy has seen enough: the machine is busy.
            sibling = await bench.start(pod, "true", security=ContainerSecurity(pid=PidMode.POD))
            await bench.ended(sibling)
        said = bench.said(await bench.ended(spy)).splitlines()
    assert said == ["ready", "[]"]
