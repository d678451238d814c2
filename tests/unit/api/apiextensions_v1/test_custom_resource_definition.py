from typing import Any

from kedge.api.apiextensions_v1.custom_resource_definition import RESOURCE
from kedge.machinery import shape

DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "crontabs.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "crontabs", "kind": "CronTab"},
        "versions": [
            {"name": "v1", "served": True, "storage": False},
            {
                "name": "v2",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "nonsense": 1}},
            },
        ],
    },
}


def fitted(document: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    unknown: list[str] = []
    return shape.fit(RESOURCE.schema, document, unknown), unknown


def test_what_is_left_out_is_filled_in() -> None:
    crd = RESOURCE.strategy.default(RESOURCE.from_document(fitted(DOCUMENT)[0]))
    assert crd.spec.names.singular == "crontab"
    assert crd.spec.names.listKind == "CronTabList"
    assert crd.spec.conversion is not None
    assert crd.spec.conversion.strategy == "None"
    assert crd.status.storedVersions == ("v2",)


def test_a_document_keeps_what_readers_rely_on() -> None:
    document, unknown = fitted(DOCUMENT)
    written = RESOURCE.to_document(RESOURCE.from_document(document))
    assert unknown == ["spec.versions[1].schema.openAPIV3Schema.nonsense"]
    assert written["spec"]["versions"] == [
        {"name": "v1", "served": True, "storage": False},
        {
            "name": "v2",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "subresources": {"status": {}},
        },
    ]


def test_a_new_storage_version_is_remembered_beside_the_old() -> None:
    old = RESOURCE.strategy.default(RESOURCE.from_document(fitted(DOCUMENT)[0]))
    new = RESOURCE.to_document(old)
    new["spec"]["versions"][0]["storage"], new["spec"]["versions"][1]["storage"] = True, False
    carried = RESOURCE.strategy.prepare_for_update(RESOURCE.from_document(new), old)
    assert list(carried.status.storedVersions) == ["v2", "v1"]


def test_the_writer_is_told_what_the_server_will_not_look_at() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "format": "riddle"}},
    }
    document = DOCUMENT | {
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}
    }
    assert list(RESOURCE.strategy.warnings(RESOURCE.from_document(document))) == [
        'unrecognized format "riddle"',
    ]


def test_how_the_kind_is_found() -> None:
    assert RESOURCE.prefix == "/registry/apiextensions.k8s.io/customresourcedefinitions/"
    assert [column.name for column in RESOURCE.presentation.columns] == ["Name", "Created At"]
