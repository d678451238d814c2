"""Struct types as schemas."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from kedge.api.core_v1.pod.pod import Pod
from kedge.api.model import MERGED_SET, Bytes, Int32, Model, ObjectMeta, Time, keyed
from kedge.api.structs import schema_of
from kedge.machinery.quantity import Quantity


class Leaf(Model):
    """The end of a branch."""

    __required__ = ("name",)

    name: str = ""


class Branch(Model):
    leaves: Annotated[Sequence[Leaf], keyed("name")] = ()
    twigs: Sequence["Branch"] = ()
    sizes: Mapping[str, Quantity] = {}
    tags: Annotated[Sequence[str], MERGED_SET] = ()
    count: Int32 | None = None
    grown: Time = ""
    sap: Bytes = ""


def test_fields_keep_their_types_and_keys() -> None:
    fields = schema_of(Branch).fields
    leaves = fields["leaves"]
    assert (leaves.type, leaves.list_type, leaves.list_keys) == ("list", "map", ("name",))
    assert (leaves.merge, leaves.merge_key) == (True, "name")
    assert leaves.items is schema_of(Leaf)
    sizes = fields["sizes"]
    assert sizes.type == "map"
    assert sizes.items is not None
    assert sizes.items.type == "quantity"
    assert (fields["tags"].list_type, fields["tags"].merge) == ("set", True)
    assert (fields["count"].type, fields["count"].format) == ("integer", "int32")
    assert (fields["grown"].type, fields["sap"].type) == ("time", "bytes")


def test_a_type_may_hold_itself() -> None:
    schema = schema_of(Branch)
    assert schema.fields["twigs"].items is schema


def test_descriptions_come_from_docstrings_and_stay_with_their_field() -> None:
    meta, pod = schema_of(ObjectMeta), schema_of(Pod)
    assert (
        meta.description
        == "The metadata of every stored object: name, labels, annotations, owners, history."
    )
    assert meta.fields["uid"].description.startswith("Tells this object from any other")
    assert pod.fields["metadata"].description == "Name, labels and history of the object."
    assert schema_of(Leaf).required == ("name",)


def test_types_are_named_as_openapi_names_them() -> None:
    pod = schema_of(Pod)
    assert pod.name == "io.k8s.api.core.v1.Pod"
    assert pod.fields["metadata"].name == "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
