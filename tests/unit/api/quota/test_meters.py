from kedge.api.quota.meters import kinds_of, meter_of


def test_kinds_are_read_off_the_names_of_a_quota() -> None:
    hard = [
        "requests.example.com/gpu",
        "services.nodeports",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "secrets",
        "gold.deviceclass.resource.k8s.io/devices",
        "count/deployments.apps",
        "count/widgets.example.com",
        "count/configmaps",
        "count/events",
        "example.com/unknown",
    ]
    assert kinds_of(hard, {}) == {
        ("", "pods"),
        ("", "services"),
        ("", "persistentvolumeclaims"),
        ("", "secrets"),
        ("resource.k8s.io", "resourceclaims"),
        ("apps", "deployments"),
        ("example.com", "widgets"),
        ("", "configmaps"),
    }


def test_claims_are_counted_for_the_extended_resources_of_classes() -> None:
    names = {"requests.deviceclass.resource.kubernetes.io/gpus": "requests.d.example/gpu"}
    both = {("", "pods"), ("resource.k8s.io", "resourceclaims")}
    assert kinds_of(["requests.d.example/gpu"], names) == both
    assert kinds_of(["requests.d.example/other"], names) == {("", "pods")}


def test_anything_stored_can_be_counted_but_events() -> None:
    meter = meter_of(("example.com", "widgets"))
    assert meter is not None
    assert meter.names(["count/widgets.example.com", "widgets"]) == {"count/widgets.example.com"}
    secrets = meter_of(("", "secrets"))
    assert secrets is not None
    assert set(secrets.measure(None).usage) == {"secrets", "count/secrets"}
    assert meter_of(("", "events")) is meter_of(("events.k8s.io", "events")) is None
