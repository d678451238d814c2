"""Selections: which objects match, and which index they name."""

import pytest

from kedge.machinery.selectors import parse_fields, parse_labels
from kedge.metrics.selection import UsageSelection
from kedge.metrics.usage_object import UsageObject

WEB = UsageObject("n1", "shop", "web", "u1", {"app": "web"})


@pytest.mark.parametrize(
    ("namespace", "labels", "fields", "matches"),
    [
        ("", "", "", True),
        ("shop", "app=web", "metadata.name=web", True),
        ("shop", "", "metadata.namespace=shop", True),
        ("bank", "", "", False),
        ("", "app=db", "", False),
        ("", "", "spec.nodeName=n1", True),
        ("", "", "spec.nodeName=n2", False),
    ],
)
def test_namespace_labels_and_fields_must_match(
    namespace: str, labels: str, fields: str, matches: bool
) -> None:
    selection = UsageSelection(namespace, parse_labels(labels), parse_fields(fields))
    assert selection.matches(WEB, WEB.labels) is matches


def test_only_a_selection_without_selectors_is_everything() -> None:
    assert UsageSelection("shop", parse_labels(""), parse_fields("")).everything
    assert not UsageSelection("shop", parse_labels("a=b"), parse_fields("")).everything
    assert not UsageSelection("shop", parse_labels(""), parse_fields("metadata.name=a")).everything


def test_a_selection_names_its_node_and_hurries_nodes_unless_it_declines() -> None:
    bound = UsageSelection(
        "", parse_labels(""), parse_fields("spec.nodeName=n1"), hurries_nodes=False
    )
    assert (bound.node, bound.hurries_nodes) == ("n1", False)
    free = UsageSelection("", parse_labels(""), parse_fields(""))
    assert (free.node, free.hurries_nodes) == (None, True)
