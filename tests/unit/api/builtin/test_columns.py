"""Cells of `kubectl get` for the kinds that are served from the table."""

from collections.abc import Sequence
from typing import Any

import pytest

from kedge.api.builtin import columns
from kedge.api.model import Document, ObjectMeta
from kedge.api.presentation import Age, Column


def row(shown: Sequence[Column], content: dict[str, Any], **meta: Any) -> list[object]:
    """All cells but those that show the age."""
    obj = Document(metadata=ObjectMeta(name="x", **meta), content=content)
    cells = [column.cell(obj) for column in shown]
    return [cell for cell in cells if not isinstance(cell, Age)]


def test_ingress_shows_three_hosts_and_counts_the_rest() -> None:
    rules = [{"host": f"h{i}.io"} for i in range(5)]
    status = {"loadBalancer": {"ingress": [{"hostname": "b.io"}, {"ip": "10.0.0.1"}]}}
    content = {"spec": {"rules": rules, "tls": [{}], "ingressClassName": "nginx"}, "status": status}
    expected = ["x", "nginx", "h0.io,h1.io,h2.io + 2 more...", "10.0.0.1,b.io", "80, 443"]
    assert row(columns.INGRESS, content) == expected
    assert row(columns.INGRESS, {}) == ["x", "<none>", "*", "", "80"]


def test_ingress_with_exactly_three_hosts_counts_nothing() -> None:
    rules = [{"host": "a.io"}, {"host": "b.io"}, {"host": "c.io"}]
    assert row(columns.INGRESS, {"spec": {"rules": rules}})[2] == "a.io,b.io,c.io"
    assert row(columns.INGRESS, {"spec": {"rules": [*rules, {}]}})[2] == (
        "a.io,b.io,c.io + 1 more..."
    )


def test_default_classes_are_marked() -> None:
    storage = {"provisioner": "example.com/disk"}
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert row(columns.STORAGE_CLASS, storage, annotations=marked) == [
        "x (default)",
        "example.com/disk",
        "Delete",
        "Immediate",
        False,
    ]
    reference = {"kind": "Parameters", "apiGroup": "k8s.example.com", "name": "p"}
    content = {"spec": {"controller": "example.com/c", "parameters": reference}}
    assert row(columns.INGRESS_CLASS, content) == [
        "x",
        "example.com/c",
        "Parameters.k8s.example.com/p",
    ]


def test_volume_shows_modes_claim_and_class() -> None:
    spec = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "default", "name": "data"},
        "storageClassName": "fast",
        "volumeMode": "Filesystem",
    }
    content = {"spec": spec, "status": {"phase": "Bound"}}
    assert row(columns.PERSISTENT_VOLUME, content) == [
        "x",
        "5Gi",
        "RWO,RWX",
        "Retain",
        "Bound",
        "default/data",
        "fast",
        "<unset>",
        "",
        "Filesystem",
    ]
    going = row(columns.PERSISTENT_VOLUME, content, deletionTimestamp="2024-01-01T00:00:00Z")
    assert going[4] == "Terminating"


@pytest.mark.parametrize(
    ("status", "condition"),
    [
        ({}, "Pending"),
        ({"conditions": [{"type": "Approved"}]}, "Approved"),
        ({"conditions": [{"type": "Approved"}], "certificate": "YQ=="}, "Approved,Issued"),
        ({"conditions": [{"type": "Denied"}, {"type": "Failed"}]}, "Denied,Failed"),
    ],
)
def test_signing_request_shows_what_became_of_it(status: dict[str, Any], condition: str) -> None:
    spec = {"signerName": "example.com/s", "username": "jane", "expirationSeconds": 86400}
    cells = row(columns.CERTIFICATE_SIGNING_REQUEST, {"spec": spec, "status": status})
    assert cells == ["x", "example.com/s", "jane", "24h", condition]


def test_network_policy_shows_its_selector() -> None:
    spec = {"podSelector": {"matchLabels": {"app": "db"}}}
    assert row(columns.NETWORK_POLICY, {"spec": spec}) == ["x", "app=db"]
    assert row(columns.NETWORK_POLICY, {"spec": {"podSelector": {}}}) == ["x", "<none>"]


def test_api_service_says_why_it_is_unavailable() -> None:
    condition = {"type": "Available", "status": "False", "reason": "ServiceNotFound"}
    content = {
        "spec": {"service": {"namespace": "kube-system", "name": "metrics"}},
        "status": {"conditions": [condition]},
    }
    expected = ["x", "kube-system/metrics", "False (ServiceNotFound)"]
    assert row(columns.API_SERVICE, content) == expected
    assert row(columns.API_SERVICE, {}) == ["x", "Local", "Unknown"]


def test_address_shows_its_parent() -> None:
    parent = {"resource": "services", "namespace": "default", "name": "web"}
    content = {"spec": {"parentRef": parent}}
    assert row(columns.IP_ADDRESS, content) == ["x", "services/default/web"]


def test_bindings_show_their_parameter() -> None:
    spec = {"policyName": "p", "paramRef": {"name": "limits"}}
    assert row(columns.POLICY_BINDING, {"spec": spec}) == ["x", "p", "*/limits"]
    assert row(columns.POLICY_BINDING, {"spec": {"policyName": "p"}}) == ["x", "p", "<unset>"]
