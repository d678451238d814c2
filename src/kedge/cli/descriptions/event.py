"""Event: what happened, to what, when, how often, and who says so."""

from collections.abc import Iterator

from kedge.cli.descriptions import parts
from kedge.cli.descriptions.parts import Fields, RelatedObjects, fact


def describe(event: Fields, about: RelatedObjects) -> str:
    return parts.text(_lines(event, about))


def _lines(event: Fields, about: RelatedObjects) -> Iterator[str]:
    metadata = event["metadata"]
    # In events.k8s.io/v1 some fields have other names.
    told_of = event.get("involvedObject") or event.get("regarding") or {}
    first = event.get("eventTime") or event.get("firstTimestamp")
    yield fact("Name", metadata["name"])
    yield fact("Namespace", metadata.get("namespace", ""))
    yield from parts.labels("Labels", metadata.get("labels"))
    yield from parts.annotations(metadata.get("annotations"))
    yield fact("Type", event.get("type", ""))
    yield fact("Reason", event.get("reason", ""))
    yield fact("Object", object_of(told_of))
    yield fact("First Seen", parts.moment(first or event.get("deprecatedFirstTimestamp")))
    yield fact("Last Seen", parts.moment(parts.last_seen(event)))
    yield fact("How Often", parts.how_often(event, about.now))
    yield fact("From", parts.source(event) or event.get("reportingController") or parts.NONE)
    if action := event.get("action"):
        yield fact("Action", action)
    yield from parts.several("Message", str(event.get("message") or event.get("note")).split("\n"))


def object_of(reference: Fields) -> str:
    """`Pod/web in namespace default`, with the part of it if one is meant."""
    named = f"{reference.get('kind', '')}/{reference.get('name', '')}"
    if namespace := reference.get("namespace"):
        named += f" in namespace {namespace}"
    if path := reference.get("fieldPath"):
        named += f", {path}"
    return named
