"""Objects as the gateway reads them."""

import msgspec
import pytest

from kedge.client.informer import Key
from kedge.gateway.objects import IngressInfo, SecretInfo, ServiceInfo, SliceInfo


@pytest.mark.parametrize("type_", [IngressInfo, SecretInfo, ServiceInfo, SliceInfo])
def test_fields_may_be_absent_and_others_are_ignored(type_: type[ServiceInfo]) -> None:
    text = b'{"kind":"X","metadata":{"name":"a","namespace":"n","uid":"1"},"other":[1]}'
    found = msgspec.json.decode(text, type=type_)
    assert found.metadata.key == Key("n", "a")
    assert found == type_(metadata=found.metadata)


def test_a_slice_may_have_null_for_its_lists() -> None:
    text = b'{"metadata":{"name":"a"},"ports":null,"endpoints":null,"addressType":"IPv6"}'
    found = msgspec.json.decode(text, type=SliceInfo)
    assert (found.ports, found.endpoints, found.address_type) == (None, None, "IPv6")
