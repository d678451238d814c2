from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api.core_v1.event import RESOURCE as CORE
from kedge.api.core_v1.event import EventSource
from kedge.api.core_v1.references import ObjectReference
from kedge.api.events_v1.event import RESOURCE, Event, EventSeries, from_stored, to_stored
from kedge.api.model import ObjectMeta

GOOD = Event(
    metadata=ObjectMeta(name="web.1", namespace="shop"),
    regarding=ObjectReference(kind="Pod", namespace="shop", name="web"),
    eventTime="2026-01-01T00:00:00.000000Z",
    reportingController="kubernetes.io/kubelet",
    reportingInstance="kubelet-1",
    action="Binding",
    reason="Scheduled",
    note="assigned",
    type="Normal",
)
FIELDS = sorted(RESOURCE.schema.fields.keys() - {"apiVersion", "kind"})


def errors(obj: Event) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_one_event_has_two_faces() -> None:
    stored = to_stored(RESOURCE.to_document(GOOD))
    assert stored["apiVersion"] == "v1"
    core = CORE.from_document(stored)
    assert (core.message, core.involvedObject.name) == ("assigned", "web")
    assert core.reportingComponent == "kubernetes.io/kubelet"
    back = RESOURCE.from_document(from_stored(CORE.to_document(core)))
    assert RESOURCE.to_document(back) == RESOURCE.to_document(GOOD)


@given(st.dictionaries(st.sampled_from(FIELDS), st.integers()))
def test_nothing_is_lost_on_the_way_to_the_store_and_back(fields: dict[str, Any]) -> None:
    document = {"kind": "Event", "apiVersion": "events.k8s.io/v1", **fields}
    stored = to_stored(document)
    assert stored.keys() <= CORE.schema.fields.keys()
    assert from_stored(stored) == document


def test_a_new_event_uses_the_new_form_only() -> None:
    assert errors(GOOD) == []
    old_form = replace(
        GOOD,
        type="Odd",
        deprecatedCount=2,
        deprecatedSource=EventSource(component="x"),
        series=EventSeries(count=1),
    )
    assert errors(old_form) == [
        'series.count: Invalid value: "": should be at least 2',
        "series.lastObservedTime: Required value",
        'type: Invalid value: "": has invalid value: Odd',
        'count: Invalid value: "": needs to be unset',
        'source: Invalid value: "": needs to be unset',
    ]


def test_an_older_event_may_still_be_updated_here() -> None:
    stored = replace(GOOD, metadata=replace(GOOD.metadata, resourceVersion="5"), deprecatedCount=2)
    assert errors(stored) == []


def test_only_the_series_of_an_event_goes_on() -> None:
    series = EventSeries(count=2, lastObservedTime=GOOD.eventTime)
    assert list(RESOURCE.strategy.validate_update(replace(GOOD, series=series), GOOD)) == []
    changed = replace(GOOD, note="other", reportingController="a/b")
    fields = [error.field for error in RESOURCE.strategy.validate_update(changed, GOOD)]
    assert fields == ["message", "reportingController"]


def test_columns_and_selectors_are_those_of_the_core_group_renamed() -> None:
    row = {column.name: column.cell(GOOD) for column in RESOURCE.presentation.columns}
    assert (row["Object"], row["Message"]) == ("pod/web", "assigned")
    assert RESOURCE.presentation.fields["regarding.kind"](GOOD) == "Pod"
    assert "involvedObject.kind" not in RESOURCE.presentation.fields
