"""Derive the table of internal types from the Go source of Kubernetes.

    derive_internal_types.py KUBERNETES OUT

KUBERNETES is a directory with `pkg/apis` and `staging`. Only facts are taken over: the names and
types of fields, and their order. kedge/api/internal_forms.py reads the table and describes its
format.
"""

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOTS = (
    "core.PodSpec",
    "core.PodTemplateSpec",
    "core.PersistentVolumeClaimSpec",
    "core.PersistentVolumeSource",
    "core.VolumeNodeAffinity",
    "core.NodeSpec",
    "storage.VolumeAttachmentSpec",
    "storage.CSINodeDriver",
    "networking.IPAddressSpec",
    "networking.IngressSpec",
    "flowcontrol.PriorityLevelConfigurationSpec",
    "flowcontrol.FlowSchemaSpec",
    "rbac.RoleRef",
    "batch.JobSpec",
    "core.EventSource",
    "resource.ResourceClaimTemplateSpec",
    "resource.AllocationResult",
    "metav1.LabelSelector",
)
SCALARS = {
    "string": "s",
    "bool": "b",
    "int": "i",
    "int32": "i",
    "int64": "i",
    "uint8": "i",
    "float64": "i",
    "types.UID": "s",
    "resource.Quantity": "q",
    "metav1.Time": "t",
    "metav1.MicroTime": "t",
    "metav1.Duration": "s",
    "intstr.IntOrString": "o",
    "metav1.FieldsV1": "o",
    "apiresource.Quantity": "q",
    "runtime.RawExtension": "y",
    "[]byte": "y",
}
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
ALIAS = re.compile(r"^type (\w+) ((?:map\[\w+\]|\[\]|\*)*[\w.]+)$", re.M)
FIELD = re.compile(r"^\t(?:(\w+) )?([\w.*\[\]]+)(?: +`(.*)`)?(?: *//.*)?$")
TAG = re.compile(r'json:"([^"]*)"')


@dataclass
class Member:
    name: str
    """The name in Go; empty for an embedded struct."""
    type: str
    tag: str | None


@dataclass
class Package:
    structs: dict[str, list[Member]]
    aliases: dict[str, str]


def main(kubernetes: str, out: str) -> None:
    root = Path(kubernetes)
    internal = {
        folder.name: read(folder / "types.go")
        for folder in (root / "pkg/apis").iterdir()
        if (folder / "types.go").exists()
    }
    staging = root / "staging/src/k8s.io"
    internal["metav1"] = read(staging / "apimachinery/pkg/apis/meta/v1/types.go")
    published = {
        name: read(staging / "api" / name / "v1/types.go")
        for name in internal
        if (staging / "api" / name / "v1/types.go").exists()
    }
    published["metav1"] = internal["metav1"]
    table: dict[str, list[list[str]]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in table:
            continue
        table[name] = fields(name, internal, published)
        waiting += [base(kind) for *_, kind in table[name] if "." in kind]
    lines = [
        f"{json.dumps(name)}: {json.dumps([' '.join(field) for field in table[name]])}"
        for name in sorted(table)
    ]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def read(path: Path) -> Package:
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    structs = {name: members(body) for name, body in STRUCT.findall(text)}
    return Package(structs, dict(ALIAS.findall(text)))


def members(body: str) -> list[Member]:
    found = []
    for line in body.splitlines():
        if match := FIELD.match(re.sub(r"\s+", " ", line.strip()).join(("\t", ""))):
            name, kind, tags = match.groups()
            tag = TAG.search(tags or "")
            found.append(Member(name or "", kind, tag.group(1) if tag else None))
    return found


def fields(
    full: str, internal: dict[str, Package], published: dict[str, Package]
) -> list[list[str]]:
    """Return the fields of a type: name in messages, name in v1, type."""
    package, name = full.split(".")
    names = wire_names(package, name, published)
    found: list[list[str]] = []
    for member in internal[package].structs[name]:
        kind = qualified(member.type, package)
        if not member.name:
            found += fields(resolved(kind, internal), internal, published)
            continue
        tag, _, options = (member.tag or "").partition(",")
        shown = tag or member.name
        mark = "?" if "omitempty" in options else ""
        wire = names.get(member.name) or tag or member.name[0].lower() + member.name[1:]
        found.append([shown, wire, mark + resolved(kind, internal)])
    return found


def wire_names(package: str, name: str, published: dict[str, Package]) -> dict[str, str]:
    source = published.get(package)
    if source is None or name not in source.structs:
        return {}
    found: dict[str, str] = {}
    for member in source.structs[name]:
        tag = (member.tag or "").partition(",")[0]
        if member.name and tag:
            found[member.name] = tag
        elif not member.name and "." not in member.type:
            found |= wire_names(package, member.type.lstrip("*"), published)
    return found


def qualified(kind: str, package: str) -> str:
    """Return a Go type with the package of each name."""
    kind = kind.replace("api.", "core.") if package != "core" else kind

    def full(match: re.Match[str]) -> str:
        word = match.group(0)
        return word if "." in word or word in SCALARS or word == "map" else f"{package}.{word}"

    return re.sub(r"[\w.]+", full, kind)


def resolved(kind: str, internal: dict[str, Package]) -> str:
    if kind in SCALARS:
        return SCALARS[kind]
    if kind.startswith("*"):
        return "*" + resolved(kind[1:], internal)
    if kind.startswith("[]"):
        return "[" + resolved(kind[2:], internal)
    if kind.startswith("map["):
        return "{" + resolved(kind.partition("]")[2], internal)
    package, _, name = kind.partition(".")
    if package in internal and name in internal[package].structs:
        return kind
    if package in internal and name in internal[package].aliases:
        return resolved(qualified(internal[package].aliases[name], package), internal)
    raise ValueError(f"unknown type {kind}")


def base(kind: str) -> str:
    return kind.lstrip("?*[{")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
