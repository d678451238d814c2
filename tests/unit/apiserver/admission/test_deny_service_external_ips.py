"""External IPs of Services are refused unless the Service had them before."""

from contextlib import nullcontext

import pytest

from kedge.api.core_v1 import service
from kedge.api.core_v1.service_types import Service, ServiceSpec
from kedge.api.model import ObjectMeta
from kedge.apiserver.admission.chain import Operation
from kedge.apiserver.admission.deny_service_external_ips import DenyServiceExternalIPs
from kedge.machinery.errors import StatusError
from kedge.testing.admission import attempt


def with_addresses(*addresses: str) -> Service:
    return Service(
        metadata=ObjectMeta(name="s", namespace="n"), spec=ServiceSpec(externalIPs=addresses)
    )


@pytest.mark.parametrize(
    ("new", "old", "is_refused"),
    [
        ((), None, False),
        (("8.8.8.8",), None, True),
        (("8.8.8.8",), (), True),
        (("8.8.8.8",), ("8.8.8.8", "1.1.1.1"), False),
        (("8.8.8.8", "9.9.9.9"), ("8.8.8.8",), True),
    ],
)
async def test_new_addresses_are_refused(
    new: tuple[str, ...], old: tuple[str, ...] | None, is_refused: bool
) -> None:
    before = None if old is None else with_addresses(*old)
    operation: Operation = "CREATE" if before is None else "UPDATE"
    written = attempt(service.RESOURCE, operation, with_addresses(*new), before)
    message = "Use of external IPs is denied by admission control"
    expected = pytest.raises(StatusError, match=message) if is_refused else nullcontext()
    with expected:
        await DenyServiceExternalIPs().validate(written)
