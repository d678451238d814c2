import msgspec

from kedge.api.model import Document
from kedge.api.resource import Resource
from kedge.client.discovery import ServedResources
from kedge.controllers.kinds import PartialDefinition, ServedKinds


def definition(*versions: str, established: bool = True) -> PartialDefinition:
    status = "True" if established else "False"
    document = {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": name, "served": True, "schema": {}} for name in versions],
        },
        "status": {"conditions": [{"type": "Established", "status": status, "reason": "r"}]},
    }
    return msgspec.convert(document, PartialDefinition)


def resource(plural: str, kind: str, group: str = "", version: str = "v1") -> Resource[Document]:
    return Resource(type=Document, group=group, version=version, plural=plural, kind=kind)


BUILT_IN = ServedResources([resource("pods", "Pod"), resource("events", "Event")])


def followed(kinds: ServedKinds) -> list[tuple[str, str]]:
    return [(found.version, found.plural) for found in kinds.followed()]


def test_events_are_not_followed() -> None:
    assert followed(ServedKinds(BUILT_IN, ())) == [("v1", "pods")]


def test_a_custom_kind_is_followed_in_one_version_and_found_in_all() -> None:
    kinds = ServedKinds(BUILT_IN, [definition("v2", "v1")])
    assert followed(kinds) == [("v1", "pods"), ("v2", "widgets")]
    old = kinds.of_kind("example.com/v1", "Widget")
    assert old is not None
    assert not old.namespaced


def test_a_kind_that_is_not_established_does_not_exist() -> None:
    kinds = ServedKinds(BUILT_IN, [definition("v1", established=False)])
    assert followed(kinds) == [("v1", "pods")]
    assert kinds.of_kind("example.com/v1", "Widget") is None


def test_a_definition_is_believed_over_what_was_discovered_before() -> None:
    discovered = ServedResources(
        [*BUILT_IN.resources, resource("widgets", "Widget", "example.com", "v0")]
    )
    assert followed(ServedKinds(discovered, [definition("v1")])) == [
        ("v1", "pods"),
        ("v1", "widgets"),
    ]
