"""TCP probe: whether a connection can be opened."""

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import TCPSocketAction
from kedge.machinery.clock import Clock
from kedge.node.probes.dialing import connect
from kedge.node.probes.http import dial_error
from kedge.node.probes.outcome import Outcome, ProbeError, Result, address, port_of
from kedge.node.waits import within


async def probe_tcp(
    action: TCPSocketAction, container: Container, ip: str, clock: Clock, seconds: float
) -> Outcome:
    """Open a connection and close it again. Raises ProbeError if there is nowhere to connect."""
    host = action.host or ip
    if not host:
        raise ProbeError("the pod has no address")
    port = port_of(action.port, container)
    try:
        await within(clock, seconds, _connect(host, port))
    except TimeoutError:
        return Outcome(Result.FAILURE, f"dial tcp {address(host, port)}: i/o timeout")
    except OSError as error:
        return Outcome(Result.FAILURE, dial_error(error, host, port))
    return Outcome(Result.SUCCESS)


async def _connect(host: str, port: int) -> None:
    _, writer = await connect(host, port)
    writer.transport.abort()
