import pytest

from kedge.api.core_v1 import resource_names


@pytest.mark.parametrize(
    "name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu"]
)
def test_containers_may_ask_for(name: str) -> None:
    assert resource_names.container_name(name) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("pods", "must be a standard resource for containers"),
        ("requests.example.com/gpu", "doesn't follow extended resource name standard"),
    ],
)
def test_containers_may_not_ask_for(name: str, why: str) -> None:
    assert resource_names.container_name(name) == [why]


def test_an_unknown_plain_name_is_nobodys() -> None:
    assert resource_names.container_name("gpu") == [
        "must be a standard resource type or fully qualified",
        "must be a standard resource for containers",
    ]


def test_only_what_kubernetes_measures_can_be_overcommitted() -> None:
    assert resource_names.may_overcommit("cpu")
    assert not resource_names.may_overcommit("hugepages-1Gi")
    assert not resource_names.may_overcommit("example.com/gpu")
