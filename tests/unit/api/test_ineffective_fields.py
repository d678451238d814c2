"""Every field of every built-in kind has an effect, or draws a warning when it is written."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import kedge
from kedge.api.builtin.resources import RESOURCES
from kedge.api.catalog import HAND_WRITTEN
from kedge.api.ineffective_fields import MOST_WARNINGS, ineffective_fields, warnings_of
from kedge.api.resource import Resource
from kedge.gateway.ingress_routes import CONTROLLER
from kedge.machinery.schema import Schema
from kedge.testing.local_server import LocalServer

SOURCES = Path(kedge.__file__).parent
AREAS: dict[str, list[str]] = yaml.safe_load(
    Path(__file__).with_name("effective_fields.yaml").read_text()
)
LISTED = {entry for entries in AREAS.values() for entry in entries}
OUTSIDE = {"VolumeAttachment": ("spec.source.inlineVolumeSpec",)}
"""Fields for programs outside of kedge, with all fields below them, by kind."""
READERS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("field_readers.yaml").read_text()
)


@cache
def words_of(name: str) -> frozenset[str]:
    """Return the names of attributes and keys that a file of the package reads."""
    text = (SOURCES / name).read_text()
    words = set(re.findall(r"\.(\w+)", text))
    for quoted in re.findall(r"[\"']([\w.]+)[\"']", text):
        words.update(quoted.split("."))
    return frozenset(words)


@cache
def words_of_methods(owner: str) -> frozenset[str]:
    """Return the names of attributes that the methods of a type read: validation and defaults,
    which are functions, are no effect."""
    found: set[str] = set()
    for text in texts_of_types():
        _, own, rest = text.partition(f"\nclass {owner}(")
        if own:
            found.update(re.findall(r"\bself\.(\w+)", rest.partition("\nclass ")[0]))
    return frozenset(found)


@cache
def words_of_readers(readers: tuple[str, ...]) -> frozenset[str]:
    files = (str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py"))
    return frozenset().union(*(words_of(name) for name in files if name.startswith(readers)))


@cache
def words_read_of(owner: str) -> frozenset[str]:
    """Return the names that the code reads which acts on a type."""
    readers = next(each for each in READERS if re.fullmatch(each["types"], owner))["readers"]
    return words_of_methods(owner) | words_of_readers(tuple(readers))


@cache
def texts_of_types() -> tuple[str, ...]:
    return tuple(path.read_text() for path in (SOURCES / "api").rglob("*.py"))


def fields(
    schema: Schema, path: str = "", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, str, str]]:
    """Yield path, type and name of every field that a user writes."""
    if id(schema) in above or (len(above) > 8 and schema.name.endswith("JSONSchemaProps")):
        return
    above = (*above, id(schema))
    for name, inner in schema.fields.items():
        at = f"{path}.{name}" if path else name
        if at not in ("apiVersion", "kind", "metadata", "status"):
            yield at, schema.name.rpartition(".")[2], name
            yield from fields(inner, at, above)
    if schema.items is not None:
        yield from fields(schema.items, f"{path}[]", above)


def is_below(path: str, others: Iterable[str]) -> bool:
    return any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in others)


def silent(resource: Resource[Any]) -> Iterator[str]:
    """Yield the fields that no code reads and no list names."""
    without_effect = (*ineffective_fields(resource.kind), *OUTSIDE.get(resource.kind, ()))
    for path, owner, name in fields(resource.schema):
        spellings = {name, re.sub("([A-Z])", r"_\1", name).lower()}
        if spellings & words_read_of(owner) or f"{owner}.{name}" in LISTED:
            continue
        if not is_below(path, without_effect):
            yield f"{owner}.{name}"


STORED = [each for each in (*HAND_WRITTEN, *RESOURCES) if each.is_stored]


def test_no_field_is_silently_without_effect() -> None:
    assert sorted({found for each in STORED for found in silent(each)}) == []


def test_fields_of_the_same_name_in_other_types_do_not_count() -> None:
    """Nodes read `hostPath`. A field of that name of an autoscaler would have no reader."""
    assert "hostPath" in words_read_of("Pod")
    assert "hostPath" not in words_read_of("MetricSpec")


def test_the_readers_exist() -> None:
    files = [str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.py")]
    owners = {owner for each in STORED for _, owner, _ in fields(each.schema)}
    for each in READERS:
        for reader in each["readers"]:
            assert any(name.startswith(reader) for name in files), reader
        assert any(re.fullmatch(each["types"], owner) for owner in owners), each["types"]


def test_the_table_names_existing_fields() -> None:
    for kind in (
        "CSIDriver",
        "DeviceClass",
        "IngressClass",
        "PersistentVolume",
        "Pod",
        "CronJob",
        "PodTemplate",
    ):
        known = {p for each in STORED if each.kind == kind for p, _, _ in fields(each.schema)}
        assert set(ineffective_fields(kind)) <= known


def test_the_list_of_effective_fields_names_existing_fields() -> None:
    known = {f"{owner}.{name}" for each in STORED for _, owner, name in fields(each.schema)}
    assert known >= LISTED


def test_a_field_draws_one_warning_and_an_empty_one_none() -> None:
    pod = {"spec": {"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "iscsi": {"lun": 1}}]}}
    found = warnings_of("Pod", pod)
    assert found == [
        "spec.volumes[1].iscsi: has no effect in kedge: nodes do not mount volumes of this type,"
        " and pods wait with the event FailedMount"
    ]
    assert warnings_of("CSIDriver", {"spec": {"seLinuxMount": False}}) == []
    assert warnings_of("ConfigMap", {"data": {"a": "b"}}) == ()
    many = {"spec": {"volumes": [{"iscsi": {"lun": 1}}] * 1000}}
    assert len(warnings_of("Pod", many)) == MOST_WARNINGS
    assert warnings_of("Pod", {"spec": {"volumes": "none"}}) == []


def test_a_local_volume_warns_of_a_file_system_type() -> None:
    (told,) = warnings_of("PersistentVolume", {"spec": {"local": {"path": "/a", "fsType": "xfs"}}})
    assert told.startswith("spec.local.fsType: has no effect in kedge: a local volume is")


def test_parameters_are_ineffective_in_the_classes_of_the_gateway_only() -> None:
    spec = {"controller": CONTROLLER, "parameters": {"kind": "A", "name": "a"}}
    assert warnings_of("IngressClass", {"spec": spec}) == [
        "spec.parameters: has no effect in kedge: the gateway has no parameters"
    ]
    other = {**spec, "controller": "example.com/other"}
    assert warnings_of("IngressClass", {"spec": other}) == ()
    assert warnings_of("IngressClass", {"spec": "none"}) == ()


DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"


@pytest.mark.parametrize("change", ["post", "merge", "apply"])
async def test_every_way_to_write_a_field_warns(change: str) -> None:
    driver = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "d"},
        "spec": {"seLinuxMount": True},
    }
    async with LocalServer.running() as server:
        match change:
            case "post":
                answer = await server.call("POST", DRIVERS, driver)
            case "apply":
                answer = await server.apply(f"{DRIVERS}/d?fieldManager=m", driver)
            case _:
                await server.post(DRIVERS, driver | {"spec": {}})
                answer = await server.call(
                    "PATCH",
                    f"{DRIVERS}/d",
                    {"spec": {"seLinuxMount": True}},
                    content_type="application/merge-patch+json",
                )
    assert answer.status in (200, 201)
    assert any("spec.seLinuxMount: has no effect in kedge" in each for each in answer.warnings)
