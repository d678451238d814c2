"""Owners of addresses and node ports."""

from kedge.apiserver.allocation.ledger import allocated_by


def test_what_a_service_has() -> None:
    spec = {
        "clusterIPs": ["10.96.1.1"],
        "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}],
        "healthCheckNodePort": 30081,
    }
    assert list(allocated_by({"spec": spec})) == ["10.96.1.1", 30080, 30081]


def test_a_headless_service_has_nothing() -> None:
    assert list(allocated_by({"spec": {"clusterIPs": ["None"]}})) == []
    assert list(allocated_by({})) == []
