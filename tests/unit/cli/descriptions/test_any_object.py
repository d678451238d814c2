"""Objects of kinds that have no description of their own."""

from datetime import UTC, datetime

import pytest

from kedge.cli.descriptions.any_object import describe, label
from kedge.cli.descriptions.parts import RelatedObjects

ABOUT = RelatedObjects(now=datetime(2030, 1, 1, tzinfo=UTC), events=[])


def test_all_fields_are_told_as_an_outline_with_the_spec_first() -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "n", "managedFields": [], "uid": "u"},
        "status": {"loadBalancer": {}},
        "spec": {
            "clusterIPs": ["10.0.0.1"],
            "ports": [{"port": 80, "name": "http"}, {"port": 81}],
            "selector": {"app.kubernetes.io/name": "web", "app": "web"},
        },
        "extra": "one\ntwo\n",
    }
    assert (
        describe(service, ABOUT)
        == """\
Name:         web
Namespace:    n
Labels:       <none>
Annotations:  <none>
API Version:  v1
Kind:         Service
Metadata:
  UID:  u
Spec:
  Cluster IPs:
    10.0.0.1
  Ports:
    - Name:  http
      Port:  80
    - Port:  81
  Selector:
    app:                     web
    app.kubernetes.io/name:  web
Extra:
  one
  two
Status:
  Load Balancer:  <none>
Events:           <none>"""
    )


def test_a_selector_of_the_other_sort_is_told_in_words() -> None:
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"tierName": "web"}}},
    }
    assert "    Match Labels:\n      tierName:  web" in describe(workload, ABOUT)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("replicas", "Replicas"),
        ("podCIDR", "Pod CIDR"),
        ("clusterIPs", "Cluster IPs"),
        ("httpGet", "HTTP Get"),
        ("tls.crt", "tls.crt"),
    ],
)
def test_keys_become_words(key: str, words: str) -> None:
    assert label(key) == words
