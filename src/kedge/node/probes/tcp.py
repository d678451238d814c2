"""TCP probe: opens a connection."""

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import TCPSocketAction
from kedge.machinery.clock import Clock
from kedge.node.network.network_place import MACHINE, NetworkPlace
from kedge.node.pod.timeouts import with_timeout
from kedge.node.probes.connection import connect
from kedge.node.probes.http import dial_error
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult, address, port_of


async def probe_tcp(
    action: TCPSocketAction,
    container: Container,
    ip: str,
    clock: Clock,
    seconds: float,
    network: NetworkPlace = MACHINE,
) -> ProbeOutcome:
    """Open a connection and close it again. Raises ProbeError if there is nowhere to connect."""
    host = action.host or ip
    if not host:
        raise ProbeError("the pod has no address")
    port = port_of(action.port, container)
    try:
        await with_timeout(clock, seconds, _connect(host, port, network))
    except TimeoutError:
        return ProbeOutcome(ProbeResult.FAILURE, f"dial tcp {address(host, port)}: i/o timeout")
    except OSError as error:
        return ProbeOutcome(ProbeResult.FAILURE, dial_error(error, host, port))
    return ProbeOutcome(ProbeResult.SUCCESS)


async def _connect(host: str, port: int, network: NetworkPlace) -> None:
    _, writer = await connect(host, port, network=network)
    writer.transport.abort()
