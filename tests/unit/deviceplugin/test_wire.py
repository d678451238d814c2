"""Messages as bytes: what other implementations write is read, and the other way round."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.deviceplugin import messages as m
from kedge.deviceplugin.wire import Malformed, decode, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@pytest.mark.parametrize(
    ("message", "written"),
    [
        (m.Empty(), ""),
        (m.DevicePluginOptions(pre_start_required=True), "0801"),
        (m.Device("a", m.HEALTHY), "0a016112074865616c746879"),
        (
            m.PreStartContainerRequest(devices_ids=["d"], env={"A": "1"}),
            "0a0164eab618060a0141120131",
        ),
        (m.PreStartContainerRequest(env={"A": ""}), "eab618030a0141"),
        (m.NUMANode(id=-1), "08ffffffffffffffffff01"),
        (m.TopologyInfo(nodes=[m.NUMANode()]), "0a00"),
    ],
)
def test_bytes_are_those_of_protocol_buffers(message: Any, written: str) -> None:
    assert encode(message).hex() == written
    assert decode(type(message), encode(message)) == message


@given(TEXT, st.lists(TEXT), st.dictionaries(TEXT, TEXT), st.integers(-(2**31), 2**31 - 1))
def test_what_is_written_is_read(
    text: str, ids: list[str], env: dict[str, str], number: int
) -> None:
    owner = m.Owner(pod_name=text)
    start = m.PreStartContainerRequest(devices_ids=ids, env=env, owner=owner)
    back = decode(m.PreStartContainerRequest, encode(start))
    assert (list(back.devices_ids), back.env, back.owner) == (ids, env, owner)
    asked = m.ContainerPreferredAllocationRequest(allocation_size=number)
    assert decode(m.ContainerPreferredAllocationRequest, encode(asked)) == asked


def test_fields_of_unknown_numbers_are_skipped() -> None:
    """A plugin built from upstream's messages sees nothing of kedge's."""
    sent = encode(m.PreStartContainerRequest(devices_ids=["d"], env={"A": "1"}))
    assert decode(m.ContainerAllocateRequest, sent) == m.ContainerAllocateRequest(devices_ids=["d"])


def test_health_that_is_not_told_is_none() -> None:
    assert decode(m.Device, encode(m.Device("a", ""))) == m.Device("a", "")


@pytest.mark.parametrize("written", ["0a05", "0aff", "0a01ff", "08", "0f", "10"])
def test_other_bytes_are_refused(written: str) -> None:
    with pytest.raises(Malformed):
        decode(m.RegisterRequest, bytes.fromhex(written))
