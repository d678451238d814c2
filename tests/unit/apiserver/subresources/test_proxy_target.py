"""Names, ports and endpoints of proxied requests, as tables."""

from random import Random

import pytest

from kedge.api.core_v1.endpoints import EndpointAddress, EndpointPort, EndpointSubset
from kedge.api.core_v1.service_types import ServicePort
from kedge.apiserver.subresources.proxy_target import (
    check_address,
    endpoint,
    first_port,
    port_name,
    split,
    split_numeric,
)
from kedge.machinery.errors import StatusError


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("web", ("", "web", "")),
        ("web:80", ("", "web", "80")),
        ("web:", ("", "web", "")),
        ("https:web:443", ("https", "web", "443")),
        ("http:web:", ("http", "web", "")),
        (":web:80", ("", "web", "80")),
    ],
)
def test_a_name_may_come_with_scheme_and_port(text: str, parts: tuple[str, str, str]) -> None:
    assert split(text, "pod")[1:] == split_numeric(text, "pod")[1:] == parts


def test_the_port_of_a_service_may_be_a_name() -> None:
    assert split("https:web:www", "service")[1:] == ("https", "web", "www")


@pytest.mark.parametrize("text", ["", ":80", "ftp:web:21", "a:b:c:d", ":web:80:"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        split(text, "service")
    assert (caught.value.code, caught.value.message) == (400, f'invalid service request "{text}"')


@pytest.mark.parametrize("text", ["web:http", "web:0", "web:70000", "web:٣", "web:" + "9" * 5000])
def test_ports_of_pods_are_numbers(text: str) -> None:
    with pytest.raises(StatusError) as caught:
        split_numeric(text, "pod")
    assert (caught.value.code, caught.value.message) == (400, f'invalid pod request "{text}"')


@pytest.mark.parametrize(
    "address",
    [
        "",
        "x",
        "127.0.0.1",
        "0.0.0.0",
        "169.254.1.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "fe80::1",
    ],
)
def test_addresses_of_the_servers_own_machine_and_link_are_refused(address: str) -> None:
    with pytest.raises(StatusError, match="address not allowed"):
        check_address(address)


@pytest.mark.parametrize("address", ["10.244.0.5", "192.168.1.1", "fd00::1", "127.244.0.5"])
def test_other_addresses_are_allowed(address: str) -> None:
    assert check_address(address) == address


def test_the_first_port_of_a_pod_is_that_of_the_first_container_that_has_one() -> None:
    ports = [{"containerPort": 8080}, {"containerPort": 9090}]
    assert first_port({"spec": {"containers": [{"name": "a"}, {"ports": ports}]}}) == 8080
    assert first_port({"spec": {"containers": [{"name": "a"}]}}) is None


def test_the_number_of_a_services_port_leads_to_its_name() -> None:
    ports = [ServicePort(name="a", port=80), ServicePort(name="b", port=81)]
    assert port_name(split("s:81", "service"), ports) == "b"
    assert port_name(split("s:x", "service"), ports) == "x"
    assert port_name(split("s", "service"), ports) == ""


def subset(ips: list[str], **ports: int) -> EndpointSubset:
    return EndpointSubset(
        addresses=[EndpointAddress(ip=ip) for ip in ips],
        ports=[EndpointPort(name=name, port=number) for name, number in ports.items()],
    )


def test_every_endpoint_with_the_port_is_chosen_sooner_or_later() -> None:
    subsets = [subset(["1", "2"], a=80), subset(["3"], a=81, b=90), subset([], a=82)]
    asked = split("s:a", "service")
    chosen = {endpoint(asked, subsets, "a", lambda _: True, Random(i)) for i in range(50)}
    assert chosen == {("1", 80), ("2", 80), ("3", 81)}
    chosen = {
        endpoint(asked, subsets, "a", lambda each: each.ip == "2", Random(i)) for i in range(50)
    }
    assert chosen == {("2", 80)}
