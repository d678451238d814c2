"""Exec probe: runs a command in the container; exit code 0 is success."""

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import ExecAction
from kedge.machinery.durations import SECOND, format_duration
from kedge.node.pod.dependencies import ConfigFailure
from kedge.node.pod.environment.expansion import expand_all
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult
from kedge.node.runtime.runtime import NotFoundError, Runtime, RuntimeFailure

MOST = 10 * 1024
"""Bytes of output in the result."""


async def probe_exec(
    action: ExecAction, container: Container, container_id: str, runtime: Runtime, seconds: float
) -> ProbeOutcome:
    """Run the probe. Raises ProbeError if the command cannot be executed."""
    # Only variables with plain values are expanded here, as in the kubelet.
    values = {var.name: var.value for var in container.env if var.valueFrom is None}
    try:
        argv = expand_all(action.command, values)
        done = await runtime.execute(container_id, argv, seconds)
    except TimeoutError:
        limit = format_duration(int(seconds * SECOND))
        words = " ".join(argv)
        return ProbeOutcome(
            ProbeResult.FAILURE, f'command timed out: "{words}" timed out after {limit}'
        )
    except (ConfigFailure, RuntimeFailure, NotFoundError) as error:
        raise ProbeError(str(error)) from error
    output = (done.stdout + done.stderr)[:MOST].decode(errors="replace")
    return ProbeOutcome(ProbeResult.SUCCESS if done.exit_code == 0 else ProbeResult.FAILURE, output)
