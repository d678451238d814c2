"""Names of kedge's own storage."""

from kedge.api.storage_v1.local_volumes import capacity_name
from kedge.machinery.names import dns_subdomain


def test_free_space_of_nodes_and_classes_with_dashes_has_different_names() -> None:
    assert capacity_name("a", "b-c") != capacity_name("a-b", "c")


def test_the_name_for_the_longest_node_and_class_is_valid() -> None:
    assert dns_subdomain(capacity_name("n" * 253, "c" * 253)) == []
