"""The kind SchedulingDecision."""

from kedge.api.model import ObjectMeta
from kedge.api.scheduling_kedge_v1alpha1.scheduling_decision import (
    RESOURCE,
    SchedulingDecision,
    verdict,
)


def test_the_verdict_depends_on_the_node() -> None:
    assert verdict(SchedulingDecision(node="a")) == "Scheduled"
    assert verdict(SchedulingDecision(message="0/0 nodes are available.")) == "Unschedulable"


def test_it_is_not_stored_and_can_only_be_read() -> None:
    assert not RESOURCE.is_stored
    assert RESOURCE.verbs == ("get", "list")


def test_every_field_is_explained() -> None:
    def unexplained(fields: dict[str, object]) -> list[str]:
        return [name for name, field in fields.items() if not getattr(field, "description", "")]

    schema = RESOURCE.schema
    assert unexplained(dict(schema.fields)) == []
    nodes = schema.fields["nodes"].items
    assert nodes is not None
    assert unexplained(dict(nodes.fields)) == []
    assert unexplained(dict(nodes.fields["usage"].fields)) == []


def test_cells() -> None:
    decision = SchedulingDecision(metadata=ObjectMeta(name="p"), note="a remark")
    cells = {each.name: each.cell(decision) for each in RESOURCE.presentation.columns}
    assert (cells["Name"], cells["Node"], cells["Message"]) == ("p", "<none>", "a remark")
