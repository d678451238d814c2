"""What a node tells of itself."""

from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest

from kedge.api.builtin.policy_limits import ENFORCEMENT_ANNOTATION
from kedge.node.host import node_record
from kedge.node.host.node_description import NodeDescription
from kedge.node.host.registration import SERVICE_PROXY
from kedge.testing.foundation import foundation


def bridge(refusal: str = "") -> SimpleNamespace:
    return SimpleNamespace(network=IPv4Network("10.244.3.0/24"), refusal=refusal)


@pytest.mark.parametrize(
    ("network", "refusal", "proxy", "policy"),
    [
        (bridge(), "", "nftables", "nftables"),
        (bridge("no nftables"), "", "userspace: no nftables", "none: no nftables"),
        (
            None,
            "no links",
            "none: pods have no addresses of their own: no links",
            "none: pods have no addresses of their own",
        ),
    ],
)
def test_the_node_tells_how_it_carries_services_and_policies(
    tmp_path: Path, network: object, refusal: str, proxy: str, policy: str
) -> None:
    node = NodeDescription(foundation(tmp_path, bridge=network, refusal=refusal)).node_object(
        "192.0.2.7", 10250
    )
    told = node.metadata.annotations
    assert (told[SERVICE_PROXY], told[ENFORCEMENT_ANNOTATION]) == (proxy, policy)
    assert node.spec.podCIDR == ("10.244.3.0/24" if network else "")


def test_the_record_tells_the_same_as_the_node(tmp_path: Path) -> None:
    NodeDescription(foundation(tmp_path, bridge=bridge())).write_record(10250)
    written = node_record.read(tmp_path)
    assert written is not None
    assert (written.name, written.port, written.pod_cidr) == ("box", 10250, "10.244.3.0/24")
    assert written.service_proxy == "nftables"
