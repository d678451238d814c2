"""Exec probe: a command in the container, well if it ends with 0."""

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import ExecAction
from kedge.machinery.durations import SECOND, format_duration
from kedge.node.expansion import expand_all
from kedge.node.parts import ConfigFailure
from kedge.node.probes.outcome import Outcome, ProbeError, Result
from kedge.node.runtime.runtime import NotFoundError, Runtime, RuntimeFailure

MOST = 10 * 1024
"""Bytes of output that are told."""


async def probe_exec(
    action: ExecAction, container: Container, container_id: str, runtime: Runtime, seconds: float
) -> Outcome:
    """Raises ProbeError if the command could not be run at all."""
    # Only variables that are plain values are known here, as upstream has it.
    values = {var.name: var.value for var in container.env if var.valueFrom is None}
    try:
        argv = expand_all(action.command, values)
        done = await runtime.execute(container_id, argv, seconds)
    except TimeoutError:
        limit = format_duration(int(seconds * SECOND))
        words = " ".join(argv)
        return Outcome(Result.FAILURE, f'command timed out: "{words}" timed out after {limit}')
    except (ConfigFailure, RuntimeFailure, NotFoundError) as error:
        raise ProbeError(str(error)) from error
    output = (done.stdout + done.stderr)[:MOST].decode(errors="replace")
    return Outcome(Result.SUCCESS if done.exit_code == 0 else Result.FAILURE, output)
