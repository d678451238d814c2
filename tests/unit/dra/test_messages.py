"""Messages of drivers as bytes: those of the published definitions."""

from typing import Any

import pytest

from kedge.deviceplugin.messages import Owner
from kedge.deviceplugin.wire import decode, encode
from kedge.dra import messages as m


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (m.ClaimReference(namespace="n", uid="u", name="c"), "0a016e1201751a0163"),
        (m.PrepareResult(error="no"), "12026e6f"),
        (m.PrepareResponse(claims={"u": m.PrepareResult()}), "0a030a0175"),
        (m.PrepareResponse(claims={"u": m.PrepareResult(error="e")}), "0a080a01751203120165"),
        (m.UnprepareResponse(claims={"u": m.UnprepareResult(error="e")}), "0a080a017512030a0165"),
        (
            m.PreparedDevice(
                request_names=["r"],
                pool_name="p",
                device_name="d",
                cdi_device_ids=["v/c=d"],
                share_id="s",
            ),
            "0a01721201701a0164220576" + "2f633d64" + "2a0173",
        ),
        (
            m.DeviceHealth(
                device=m.DeviceIdentifier(pool_name="p", device_name="d"),
                health=m.UNHEALTHY_DEVICE,
            ),
            "0a060a0170120164" + "1002",
        ),
    ],
)
def test_bytes_are_those_of_protocol_buffers(message: Any, written: str) -> None:
    assert encode(message).hex() == written
    back = decode(type(message), bytes.fromhex(written))
    assert encode(back) == encode(message)


def test_a_driver_built_without_kedges_fields_skips_them() -> None:
    container = m.ClaimContainer(owner=Owner(pod_name="p"), env={"A": "1"})
    sent = encode(m.ClaimReference(uid="u", containers=[container]))
    assert decode(m.DeviceIdentifier, sent) == m.DeviceIdentifier(device_name="u")
