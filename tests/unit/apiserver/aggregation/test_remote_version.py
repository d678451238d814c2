"""Which APIServices lead to another server."""

from typing import Any

from kedge.apiserver.aggregation.remote_version import RemoteVersion, remote_version
from kedge.apiserver.group_priorities import GroupPriority


def api_service(**spec: Any) -> dict[str, Any]:
    whole = {
        "group": "g.example.com",
        "version": "v1",
        "groupPriorityMinimum": 10,
        "versionPriority": 20,
        "service": {"namespace": "ns", "name": "svc"},
        **spec,
    }
    return {"metadata": {"name": "v1.g.example.com"}, "spec": whole}


def test_the_content_of_an_api_service() -> None:
    document = api_service(caBundle="Q0E=", insecureSkipTLSVerify=False)
    document["status"] = {"conditions": [{"type": "Available", "status": "True"}]}
    found = remote_version(document)
    assert found == RemoteVersion(
        name="v1.g.example.com",
        group="g.example.com",
        version="v1",
        namespace="ns",
        service="svc",
        port=443,
        ca_bundle="Q0E=",
        is_insecure=False,
        priority=GroupPriority(10, 20),
        is_available=True,
    )
    assert (found.path, found.host) == ("/apis/g.example.com/v1", "svc.ns.svc")


def test_a_version_without_a_true_condition_is_not_available() -> None:
    unknown = remote_version(api_service())
    assert unknown is not None
    assert not unknown.is_available


def test_local_versions_and_the_core_are_answered_by_this_server() -> None:
    assert remote_version(api_service(service=None)) is None
    assert remote_version(api_service(group="")) is None
    assert remote_version(api_service(group="apiregistration.k8s.io")) is None
