"""Every hand-written type is what Kubernetes publishes; the table of built-in types is witness."""

from typing import Any

import msgspec
import pytest

from kedge.api import structs
from kedge.api.builtin.schemas import PublishedTypes, described
from kedge.api.catalog import HAND_WRITTEN
from kedge.machinery.schema import Schema

PUBLISHED = PublishedTypes({})
STRUCTS = described(resource.type for resource in HAND_WRITTEN)

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
CRD = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1"

# Kedge's additions, which no upstream server knows.
OWN_TYPES = {
    f"{CORE}.LimitRangeSelector",
}
OWN_FIELDS = {
    f"{CORE}.LimitRangeItem.impliedDefaults",
    f"{CORE}.LimitRangeItem.selector",
    "io.k8s.api.autoscaling.v2.ContainerResourceMetricSource.statistic",
    "io.k8s.api.autoscaling.v2.ContainerResourceMetricSource.window",
    "io.k8s.api.autoscaling.v2.ResourceMetricSource.statistic",
    "io.k8s.api.autoscaling.v2.ResourceMetricSource.window",
    f"{CORE}.EnvVarSource.containerFieldRef",
    f"{CORE}.EnvVarSource.containerfieldRef",
    f"{CORE}.DownwardAPIVolumeFile.containerFieldRef",
    f"{CORE}.DownwardAPIVolumeFile.containerfieldRef",
}

# Fields that kedge leaves out.
LEFT_OUT = {
    f"{META}.ListMeta.shardInfo",
}

# Fields that kedge declares otherwise, on purpose.
OTHERWISE = {
    # Only the one form is allowed in a CRD.
    f"{CRD}.JSONSchemaProps.items",
}


def shape(node: Schema | None) -> tuple[Any, ...]:
    """What a client could notice of a type: how it is written and how it is merged."""
    if node is None:
        return ()
    merging = (node.list_type, node.list_keys, node.merge, node.merge_key, node.retain_keys)
    if node.type == "any" or node.name:
        return (node.type, "" if node.type == "any" else node.name, node.atomic, merging)
    return (node.type, node.format, node.atomic, merging, shape(node.items))


def differences(name: str, mine: Schema, published: Schema) -> list[str]:
    found = []
    for field in sorted(mine.fields.keys() | published.fields.keys()):
        path = f"{name}.{field}"
        if field not in published.fields:
            if path not in OWN_FIELDS:
                found.append(f"{path} is not published")
        elif field not in mine.fields:
            if path not in LEFT_OUT:
                found.append(f"{path} is missing")
        elif path not in OTHERWISE:
            here, there = shape(mine.fields[field]), shape(published.fields[field])
            if here != there:
                found.append(f"{path} is {here}, published is {there}")
    return found


@pytest.mark.parametrize("name", sorted(STRUCTS.keys() - OWN_TYPES))
def test_type_has_the_published_fields(name: str) -> None:
    assert name in PUBLISHED, "no such type is published"
    mine, published = structs.schema_of(STRUCTS[name]), PUBLISHED.schema(name)
    assert differences(name, mine, published) == []
    assert sorted(mine.required) == sorted(published.required)
    assert mine.atomic == published.atomic


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_every_field_is_described_for_explain(name: str) -> None:
    described_fields = structs.field_docs(STRUCTS[name])
    names = [field.name for field in msgspec.structs.fields(STRUCTS[name])]
    assert [each for each in names if not described_fields.get(each)] == []


def test_every_addition_is_marked_as_an_extension() -> None:
    marked = {
        f"{name}.{field}"
        for name, struct in STRUCTS.items()
        for field, node in structs.schema_of(struct).fields.items()
        if node.extension
    }
    assert marked == OWN_FIELDS
