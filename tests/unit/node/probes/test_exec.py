import pytest

from kedge.api.core_v1.pod.probe import ExecAction
from kedge.node.probes.exec import probe_exec
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ExecResult,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.testing.clock import FakeClock
from kedge.testing.pods import new_pod
from kedge.testing.runtime import FakeRuntime

SPEC = new_pod(container={"env": [{"name": "A", "value": "1"}]}).spec.containers[0]
ACTION = ExecAction(command=["check", "$(A)"])
ARGV = ("check", "1")


async def running() -> tuple[FakeRuntime, str]:
    runtime = FakeRuntime(FakeClock())
    sandbox = await runtime.run_sandbox(SandboxConfig(namespace="n", name="p", uid="u"))
    identity = await runtime.create_container(sandbox.id, ContainerConfig(name="ctr", image="i"))
    await runtime.start_container(identity)
    return runtime, identity


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (ExecResult(exit_code=0, stdout=b"ok"), ProbeOutcome(ProbeResult.SUCCESS, "ok")),
        (ExecResult(exit_code=2, stderr=b"no"), ProbeOutcome(ProbeResult.FAILURE, "no")),
        (
            TimeoutError(),
            ProbeOutcome(ProbeResult.FAILURE, 'command timed out: "check 1" timed out after 3s'),
        ),
    ],
)
async def test_the_exit_code_decides(
    answer: ExecResult | Exception, expected: ProbeOutcome
) -> None:
    runtime, identity = await running()
    runtime.commands[ARGV] = answer
    assert await probe_exec(ACTION, SPEC, identity, runtime, 3) == expected


async def test_a_command_that_could_not_be_run_says_nothing() -> None:
    runtime, identity = await running()
    runtime.commands[ARGV] = RuntimeFailure("no such file")
    with pytest.raises(ProbeError, match="no such file"):
        await probe_exec(ACTION, SPEC, identity, runtime, 3)
