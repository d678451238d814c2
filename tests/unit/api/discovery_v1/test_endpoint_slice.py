import pytest

from kedge.api.discovery_v1.endpoint_slice import (
    RESOURCE,
    Endpoint,
    EndpointHints,
    EndpointPort,
    EndpointSlice,
    ForZone,
)


def of(type_: str, *addresses: str) -> EndpointSlice:
    return EndpointSlice(addressType=type_, endpoints=[Endpoint(addresses=addresses)])


def errors(obj: EndpointSlice) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


@pytest.mark.parametrize(
    ("type_", "address"),
    [("IPv4", "10.0.0.1"), ("IPv6", "2001:db8::1"), ("FQDN", "web.example.com")],
)
def test_addresses_are_of_the_type_of_the_slice(type_: str, address: str) -> None:
    assert errors(of(type_, address)) == []


def test_other_addresses_are_refused() -> None:
    assert errors(of("IPv4", "2001:db8::1")) == [
        'endpoints[0].addresses: Invalid value: "2001:db8::1": must be an IPv4 address'
    ]
    assert errors(of("IPv6", "2001:DB8::1")) == [
        'endpoints[0].addresses[0]: Invalid value: "2001:DB8::1": '
        'must be in canonical form ("2001:db8::1")'
    ]
    assert errors(of("IPv4")) == [
        "endpoints[0].addresses: Required value: must contain at least 1 address"
    ]


def test_ports_are_named_once_and_default_to_tcp() -> None:
    obj = RESOURCE.strategy.default(
        EndpointSlice(addressType="IPv4", ports=[EndpointPort(port=80), EndpointPort(port=81)])
    )
    assert RESOURCE.to_document(obj)["ports"][0] == {"name": "", "port": 80, "protocol": "TCP"}
    assert errors(obj) == ['ports[1].name: Duplicate value: ""']


def test_hints_are_few_and_distinct() -> None:
    zones = EndpointHints(forZones=[ForZone(name="a"), ForZone(name="a")])
    endpoint = Endpoint(addresses=["10.0.0.1"], hints=zones)
    assert errors(EndpointSlice(addressType="IPv4", endpoints=[endpoint])) == [
        'endpoints[0].hints.forZones[1].name: Duplicate value: "a"'
    ]
    many = Endpoint(
        addresses=["10.0.0.1"],
        hints=EndpointHints(forZones=[ForZone(name=str(i)) for i in range(9)]),
    )
    assert errors(EndpointSlice(addressType="IPv4", endpoints=[many])) == [
        "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"
    ]


def test_the_address_type_is_for_ever() -> None:
    (error,) = RESOURCE.strategy.validate_update(of("IPv6"), of("IPv4"))
    assert str(error) == 'addressType: Invalid value: "IPv6": field is immutable'


def test_the_columns_show_the_first_few() -> None:
    row = {
        c.name: c.cell(of("IPv4", "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"))
        for c in RESOURCE.presentation.columns
    }
    assert row["Endpoints"] == "1.1.1.1,1.1.1.2,1.1.1.3 + 1 more..."
    assert row["Ports"] == "<unset>"
