import pytest

from kedge.api.core_v1.pod.probe import GRPCAction
from kedge.node.probes import grpc_health
from kedge.node.probes.grpc_health import probe_grpc
from kedge.node.probes.outcome import ProbeError, ProbeOutcome, ProbeResult


async def test_an_agent_that_cannot_speak_grpc_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_health, "_library", lambda: None)
    with pytest.raises(ProbeError, match="grpcio"):
        await probe_grpc(GRPCAction(port=1), "127.0.0.1", 1)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"\x08\x01", ProbeOutcome(ProbeResult.SUCCESS, "service healthy")),
        (
            b"\x08\x02",
            ProbeOutcome(ProbeResult.FAILURE, 'service unhealthy (responded with "NOT_SERVING")'),
        ),
        (b"", ProbeOutcome(ProbeResult.FAILURE, 'service unhealthy (responded with "UNKNOWN")')),
    ],
)
async def test_the_service_decides(answer: bytes, expected: ProbeOutcome) -> None:
    grpc = pytest.importorskip("grpc")
    asked: list[bytes] = []

    async def check(request: bytes, context: object) -> bytes:
        asked.append(request)
        return answer

    handler = grpc.unary_unary_rpc_method_handler(check)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        assert await probe_grpc(GRPCAction(port=port, service="s"), "127.0.0.1", 5) == expected
    finally:
        await server.stop(None)
    assert asked == [b"\x0a\x01s"]
