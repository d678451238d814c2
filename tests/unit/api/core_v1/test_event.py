from kedge.api.core_v1.event import RESOURCE, Event, EventSeries, EventSource
from kedge.api.core_v1.references import ObjectReference
from kedge.api.model import ObjectMeta
from kedge.api.presentation import Age

POD = ObjectReference(kind="Pod", namespace="shop", name="web")
HERE = ObjectMeta(name="web.1", namespace="shop")
WHEN = "2026-01-01T00:00:00.000000Z"


def errors(obj: Event) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_an_older_event_lies_beside_its_object() -> None:
    assert errors(Event(metadata=HERE, involvedObject=POD)) == []
    elsewhere = ObjectMeta(name="web.1", namespace="other")
    assert errors(Event(metadata=elsewhere, involvedObject=POD)) == [
        'involvedObject.namespace: Invalid value: "shop": does not match event.namespace'
    ]


def test_an_event_of_the_new_sort_says_who_did_what_and_why() -> None:
    found = errors(Event(metadata=HERE, involvedObject=POD, eventTime=WHEN))
    required = [text for text in found if text.endswith("Required value")]
    assert required == [
        f"{field}: Required value"
        for field in ("reportingComponent", "reportingInstance", "action", "reason")
    ]


def test_a_series_counts_itself() -> None:
    event = Event(
        metadata=HERE,
        involvedObject=POD,
        firstTimestamp="2026-01-01T00:00:00Z",
        count=3,
        series=EventSeries(count=9, lastObservedTime=WHEN),
        source=EventSource(component="kubelet", host="n1"),
        message=" started \n",
    )
    row = {column.name: column.cell(event) for column in RESOURCE.presentation.columns}
    assert row["Last Seen"] == Age(WHEN)
    assert row["First Seen"] == Age("2026-01-01T00:00:00Z")
    assert row["Count"] == 9
    assert row["Object"] == "pod/web"
    assert row["Source"] == "kubelet, n1"
    assert row["Message"] == "started"
    assert list(row)[-1] == "Name"


def test_events_are_selected_by_what_they_are_about() -> None:
    event = Event(metadata=HERE, involvedObject=POD, reportingComponent="c", type="Normal")
    values = {name: read(event) for name, read in RESOURCE.presentation.fields.items()}
    assert values["involvedObject.name"] == "web"
    assert values["involvedObject.uid"] == ""
    assert values["source"] == "c"
    assert len(values) == 11
