import asyncio

from kedge.api.core_v1.pod.container import Container
from kedge.api.core_v1.pod.probe import TCPSocketAction
from kedge.machinery.clock import SystemClock
from kedge.node.probes.outcome import ProbeOutcome, ProbeResult
from kedge.node.probes.tcp import probe_tcp


async def test_a_port_that_opens_is_well_and_one_that_does_not_is_not() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    action = TCPSocketAction(port=port)
    clock = SystemClock()
    assert await probe_tcp(action, Container(), "127.0.0.1", clock, 5) == ProbeOutcome(
        ProbeResult.SUCCESS
    )
    server.close()
    await server.wait_closed()
    outcome = await probe_tcp(action, Container(), "127.0.0.1", clock, 5)
    assert outcome == ProbeOutcome(
        ProbeResult.FAILURE, f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    )
