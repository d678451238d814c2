"""Derive the table of protobuf field numbers from a Kubernetes source tree.

    derive_protobuf.py SOURCE OUT

Numbers and types come from the published .proto files; JSON names, and which fields are pointers
(so that their zero means something), from the Go types beside them. kedge/api/protobuf/messages.py
reads the table and describes its format.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    "k8s.io/api/*/v1",
    "k8s.io/api/autoscaling/v2",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "k8s.io/apimachinery/pkg/apis/meta/v1",
    "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
    "k8s.io/metrics/pkg/apis/metrics/v1beta1",
)
ROOTS = re.compile(r"\.?k8s\.io\.(api|\w+\.pkg\.apis|apimachinery\.pkg)\.")
SCALARS = {
    "string": "string",
    "bool": "bool",
    "bytes": "bytes",
    "double": "double",
    "int32": "int",
    "int64": "int",
    "api.resource.Quantity": "quantity",
    "util.intstr.IntOrString": "int-or-string",
    "meta.v1.Time": "time",
    "meta.v1.MicroTime": "micro-time",
    "meta.v1.Duration": "duration",
    "meta.v1.FieldsV1": "json",
    "runtime.RawExtension": "json",
    "apiextensions.v1.JSON": "json",
}
NUMBERS = ("bool", "double", "int")
MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.M | re.S)
NUMBERED = re.compile(r"^\s+(optional |repeated )?(map<string, ?(.+)>|\S+) \w+ = (\d+);", re.M)
STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.M | re.S)
TAGGED = re.compile(
    r'^\t(?:\w+\s+)?(\S+)\s+`[^`]*json:"([^"]*)"[^`]*protobuf:"\w+,(\d+)[^`]*`', re.M
)


class GoField(NamedTuple):
    """A field of a Go type: its JSON name, and how its zero value is encoded."""

    json: str
    pointer: bool
    inline: bool
    omitempty: bool


def main(source: str, out: str) -> None:
    staging = Path(source, "staging/src")
    table: dict[str, dict[str, str]] = {}
    for pattern in PACKAGES:
        for proto in sorted(staging.glob(f"{pattern}/generated.proto")):
            table |= dict(messages(proto))
    lines = [
        f"{json.dumps(name)}: {json.dumps(table[name], separators=(',', ':'))}"
        for name in sorted(table)
        if name not in SCALARS and not is_list(name, table)
    ]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def is_list(name: str, table: dict[str, dict[str, str]]) -> bool:
    # Clients do not send lists of objects.
    return name.endswith("List") and "meta.v1.ListMeta" in table[name].get("1", "")


def messages(proto: Path) -> Iterator[tuple[str, dict[str, str]]]:
    text = proto.read_text()
    package = re.search(r"^package (\S+);", text, re.M)
    assert package is not None
    structs = go_structs(proto.parent)
    for name, body in MESSAGE.findall(text):
        known = structs.get(name, {})
        found = NUMBERED.findall(without_comments(body))
        fields = {
            number: field(label, written, of_map, known.get(number), package[1])
            for label, written, of_map, number in found
        }
        yield short(f"{package[1]}.{name}"), fields


def without_comments(text: str) -> str:
    return re.sub(r"//.*", "", text)


def go_structs(folder: Path) -> dict[str, dict[str, GoField]]:
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.go")))
    return {
        name: {number: go_field(kind, tag) for kind, tag, number in TAGGED.findall(body)}
        for name, body in STRUCT.findall(text)
    }


def go_field(kind: str, tag: str) -> GoField:
    name, *options = tag.split(",")
    pointer, inline = kind.startswith("*"), "inline" in options
    return GoField(name, pointer, inline, "omitempty" in options or "omitzero" in options)


def field(label: str, written: str, of_map: str, go: GoField | None, package: str) -> str:
    """`name type marks`; the name `*` makes the field stand for its message."""
    kind = value_type(of_map or written, package)
    if of_map:
        kind = f"{{{kind}}}"
    elif label == "repeated ":
        kind = f"[{kind}]"
    if go is None:
        return f"* {kind}"
    name = "." if go.inline and not go.json else go.json
    marks = ["pointer"] if go.pointer else []
    if kind in NUMBERS and not go.pointer and not go.omitempty:
        marks = ["kept"]
    return " ".join([name, kind, *marks])


def value_type(written: str, package: str) -> str:
    name = written if written in SCALARS else short(qualified(written, package))
    return SCALARS.get(name, name)


def qualified(written: str, package: str) -> str:
    return written if "k8s.io" in written else f"{package}.{written}"


def short(name: str) -> str:
    """`core.v1.Pod` for k8s.io.api.core.v1.Pod."""
    return ROOTS.sub("", name)


if __name__ == "__main__":
    main(*sys.argv[1:])
