"""The names of the methods on the wire."""

from kedge.dra.methods import SERVICES, WATCH_HEALTH


def test_methods_have_the_names_of_the_published_services() -> None:
    assert [each.path for methods in SERVICES.values() for each in methods] == [
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodeUnprepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources",
        "/k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodeUnprepareResources",
    ]
    assert WATCH_HEALTH.path == "/v1alpha1.DRAResourceHealth/NodeWatchResources"
    assert WATCH_HEALTH.streams


def test_drivers_register_with_the_short_names_of_services() -> None:
    assert list(SERVICES) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
