import pytest

from kedge.apiserver.kms.measured_plugin import MeasuredPlugin, kms_latency, status_code
from kedge.storage.store import KeyServiceError
from kedge.testing.clock import FakeClock
from kedge.testing.kms_plugin import TestKeyPlugin


async def test_calls_are_counted_by_provider_method_and_code() -> None:
    plugin, latency = TestKeyPlugin(), kms_latency()
    measured = MeasuredPlugin("vault", plugin, FakeClock(), latency)
    await measured.status()
    await measured.encrypt(b"seed")
    plugin.failure = "away"
    with pytest.raises(KeyServiceError):
        await measured.status()
    head = 'provider_name="vault",method_name="/v2.KeyManagementService/'
    assert dict(latency.totals()) == {
        f'{head}Encrypt",grpc_status_code="OK"': 1,
        f'{head}Status",grpc_status_code="OK"': 1,
        f'{head}Status",grpc_status_code="unknown-non-grpc"': 1,
    }


class RpcFailure(Exception):
    class Code:
        name = "DEADLINE_EXCEEDED"

    def code(self) -> Code:
        return self.Code()


def test_codes_are_named_as_in_go() -> None:
    error = KeyServiceError("vault", "late")
    error.__cause__ = RpcFailure()
    assert status_code(error) == "DeadlineExceeded"
