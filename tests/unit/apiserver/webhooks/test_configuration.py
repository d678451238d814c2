"""Which webhooks speak of which requests."""

from typing import Any

import msgspec
import pytest

from kedge.api.apps_v1 import deployment
from kedge.api.autoscaling_v1 import horizontal_pod_autoscaler as hpa_v1
from kedge.api.autoscaling_v2 import horizontal_pod_autoscaler as hpa_v2
from kedge.api.catalog import Catalog
from kedge.api.core_v1 import event, namespace, node
from kedge.api.core_v1.pod import pod
from kedge.api.events_v1 import event as events_event
from kedge.api.resource import Resource
from kedge.apiserver.alike_bodies import AlikeBodies
from kedge.apiserver.watchcache import ResourceCache
from kedge.apiserver.webhooks.configuration import GROUP, Hooks, compiled
from kedge.storage.store import StoreEntry


def rule(resources: str, operations: str = "*", groups: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "operations": operations.split(),
        "apiGroups": groups.split() or [""],
        "apiVersions": ["*"],
        "resources": resources.split(),
    } | fields


def hook(name: str, *rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": name, "rules": list(rules), "sideEffects": "None"} | fields


def configuration(name: str, *hooks: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "webhooks": list(hooks)}


def hooks_of(*configurations: dict[str, Any]) -> Hooks:
    catalog = Catalog()
    kind = catalog.find(GROUP, "v1", "mutatingwebhookconfigurations")
    assert kind is not None
    cache = ResourceCache(kind, 0, AlikeBodies)
    cache.load(
        StoreEntry(kind.key("", each["metadata"]["name"]), msgspec.json.encode(each), 1, 1)
        for each in configurations
    )
    return Hooks(cache, catalog)


@pytest.mark.parametrize(
    ("written", "operation", "resource", "part", "spoken_of"),
    [
        (rule("pods"), "CREATE", pod.RESOURCE, "", True),
        (rule("pods", "CREATE UPDATE"), "DELETE", pod.RESOURCE, "", False),
        (rule("pods"), "CREATE", pod.RESOURCE, "status", False),
        (rule("pods/status"), "UPDATE", pod.RESOURCE, "status", True),
        (rule("pods/status"), "UPDATE", pod.RESOURCE, "", False),
        (rule("pods/*"), "UPDATE", pod.RESOURCE, "", True),
        (rule("*"), "CREATE", pod.RESOURCE, "", True),
        (rule("*"), "CREATE", pod.RESOURCE, "binding", False),
        (rule("*/scale", groups="apps"), "UPDATE", deployment.RESOURCE, "scale", True),
        (rule("*/*", groups="*"), "UPDATE", deployment.RESOURCE, "status", True),
        (rule("deployments"), "UPDATE", deployment.RESOURCE, "", False),
        (rule("pods", apiVersions=["v2"]), "CREATE", pod.RESOURCE, "", False),
        (rule("*", scope="Namespaced"), "CREATE", pod.RESOURCE, "", True),
        (rule("*", scope="Namespaced"), "CREATE", node.RESOURCE, "", False),
        (rule("*", scope="Cluster"), "CREATE", node.RESOURCE, "", True),
        (rule("*", scope="Cluster"), "CREATE", namespace.RESOURCE, "", True),
        (rule("*", scope="Cluster"), "CREATE", pod.RESOURCE, "", False),
    ],
)
def test_rules_by_operation_group_version_resource_and_scope(
    written: dict[str, Any], operation: str, resource: Resource[Any], part: str, spoken_of: bool
) -> None:
    hooks = hooks_of(configuration("c", hook("h", written)))
    assert bool(hooks.matching(operation, resource, part)) is spoken_of


def test_configurations_go_by_name_and_hooks_as_they_are_listed() -> None:
    every = rule("*")
    hooks = hooks_of(
        configuration("b", hook("3", every), hook("2", every)), configuration("a", hook("9", every))
    )
    matches = hooks.matching("CREATE", pod.RESOURCE, "")
    assert [match.hook.uid for match in matches] == ["a/9/0", "b/3/0", "b/2/0"]
    assert [match.hook.index for match in matches] == [0, 1, 2]


def test_same_objects_in_another_version_or_group_count_unless_exactly_is_meant() -> None:
    v2_only = rule("horizontalpodautoscalers", groups="autoscaling", apiVersions=["v2"])
    core_events = rule("events")
    loose = hooks_of(configuration("c", hook("h", v2_only, core_events)))
    exact = hooks_of(configuration("c", hook("h", v2_only, core_events, matchPolicy="Exact")))
    (match,) = loose.matching("CREATE", hpa_v1.RESOURCE, "")
    assert match.resource is hpa_v2.RESOURCE
    (match,) = loose.matching("CREATE", events_event.RESOURCE, "")
    assert match.resource is event.RESOURCE
    assert exact.matching("CREATE", hpa_v1.RESOURCE, "") == ()
    assert exact.matching("CREATE", hpa_v2.RESOURCE, "")[0].resource is hpa_v2.RESOURCE


def test_version_that_was_asked_for_is_preferred_to_an_equivalent_one() -> None:
    both = rule("horizontalpodautoscalers", groups="autoscaling", apiVersions=["v2", "v1"])
    hooks = hooks_of(configuration("c", hook("h", both)))
    assert hooks.matching("CREATE", hpa_v1.RESOURCE, "")[0].resource is hpa_v1.RESOURCE


def test_what_is_left_out_means_what_kubernetes_says() -> None:
    (left_out,) = compiled([configuration("c", hook("h", admissionReviewVersions=["v9", "v1"]))])
    assert left_out.seconds == 10
    assert left_out.any_version
    assert not left_out.ignores_failure
    assert not left_out.called_again
    assert left_out.namespaces.empty
    assert left_out.review == "v1"
    assert left_out.client.port == 443


def test_selector_that_cannot_be_read_does_not_open_the_door() -> None:
    broken = {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}
    (kept,) = compiled([configuration("c", hook("h", objectSelector=broken))])
    assert kept.fault.startswith("objectSelector: ")
