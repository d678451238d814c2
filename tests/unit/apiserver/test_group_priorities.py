"""In which order groups and versions are listed."""

from kedge.api.catalog import BUILT_IN as RESOURCES
from kedge.apiserver.group_priorities import BUILT_IN, CUSTOM, group_rank, priority


def test_every_built_in_version_of_kubernetes_has_a_priority() -> None:
    served = {(each.group, each.version) for each in RESOURCES}
    assert set(BUILT_IN) <= served
    missing = {group for group, _ in served - set(BUILT_IN)}
    own = {"metrics", "metrics.k8s.io", "scheduling.kedge"}
    assert missing - own == {"apiregistration.k8s.io"}


def test_groups_are_ranked_by_priority_and_others_come_last() -> None:
    names = ["example.com", "batch", "apps", "apiregistration.k8s.io"]
    assert sorted(names, key=group_rank) == names[::-1]


def test_unknown_versions_have_the_priority_of_custom_resources() -> None:
    assert priority("example.com", "v1") == CUSTOM
    assert priority("autoscaling", "v2").version > priority("autoscaling", "v1").version
