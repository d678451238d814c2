import pytest

from kedge.api.core_v1.endpoints import (
    RESOURCE,
    EndpointAddress,
    EndpointPort,
    Endpoints,
    EndpointSubset,
    summary,
)


def of(*ips: str, ports: tuple[int, ...] = (80,)) -> Endpoints:
    subset = EndpointSubset(
        addresses=[EndpointAddress(ip=ip) for ip in ips],
        ports=[EndpointPort(name=f"p{port}", port=port) for port in ports],
    )
    return RESOURCE.strategy.default(Endpoints(subsets=[subset]))


def errors(obj: Endpoints) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


@pytest.mark.parametrize(
    ("ip", "why"),
    [
        ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            "224.0.0.9",
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
    ],
)
def test_nobody_can_be_sent_to_special_addresses(ip: str, why: str) -> None:
    assert errors(of(ip)) == [f'subsets[0].addresses[0].ip: Invalid value: "{ip}": {why}']


def test_pods_that_share_the_network_of_their_machine_are_endpoints() -> None:
    assert errors(of("127.244.0.5")) == []


def test_a_subset_has_addresses_and_a_protocol_for_each_port() -> None:
    assert errors(of("10.0.0.1")) == []
    assert errors(of()) == [
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"
    ]


def test_the_summary_shows_three_and_counts_the_rest() -> None:
    assert summary(Endpoints()) == "<none>"
    assert summary(of("10.0.0.1", "fd00::1", ports=())) == "10.0.0.1,fd00::1"
    many = of("10.0.0.1", "fd00::1", ports=(80, 81))
    assert summary(many) == "10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more..."
