"""Derive the names of the Go types of fields from the Go source of Kubernetes.

    derive_go_types.py KUBERNETES SCHEMAS OUT

OUT lists the fields of the types in the table SCHEMAS that are in an embedded struct, and those
whose Go type has a name of its own and is no struct. kedge/api/builtin/go_types.py reads it.
"""

import json
import re
import sys
from pathlib import Path

from derive_internal_types import Package
from order_schemas import published

OWN_READERS = ("resource.Quantity", "intstr.IntOrString", "v1.Time", "v1.MicroTime", "v1.Duration")
PLAIN = ("string", "bool", "int", "int32", "int64", "float64", "uint8", "interface")


def main(kubernetes: str, schemas: str, out: str) -> None:
    packages = published(Path(kubernetes) / "staging/src/k8s.io")
    table = {}
    for name in json.loads(Path(schemas).read_text()):
        package, _, kind = name.rpartition(".")
        if found := fields(package, kind, packages):
            table[name] = found
    lines = [f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table.items()]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def fields(package: str, kind: str, packages: dict[str, Package], way: str = "") -> dict[str, str]:
    if package not in packages or kind not in packages[package].structs:
        return {}
    found: dict[str, str] = {}
    for member in packages[package].structs[kind]:
        tag = (member.tag or "").partition(",")[0]
        place, _, inner = member.type.lstrip("*").rpartition(".")
        there = {"metav1": "meta.v1", "v1": "core.v1", "": package}.get(place, place)
        if not tag:
            found |= fields(there, inner, packages, f"{way}{inner}.")
            continue
        text = written(member.type.lstrip("*"), package)
        named = is_named(member.type, package, packages) and text not in OWN_READERS
        if named or way:
            found[tag] = f"{way} {text if named else ''}".strip(" ") if way else text
    return found


def is_named(kind: str, package: str, packages: dict[str, Package]) -> bool:
    """Whether a type other than a struct is in a type that is no list or map of plain ones."""
    names = re.findall(r"[A-Za-z][\w.]*", kind.replace("map[", "["))
    return any(name not in PLAIN and not is_struct(name, package, packages) for name in names)


def is_struct(name: str, package: str, packages: dict[str, Package]) -> bool:
    place, _, inner = name.rpartition(".")
    there = {"metav1": "meta.v1", "v1": "core.v1", "": package}.get(place, place)
    if there not in packages:
        return name != "types.UID"
    return inner in packages[there].structs


def written(kind: str, package: str) -> str:
    """Return a type as Go's reflection names it: by the name of its package, which is v1."""

    def full(match: re.Match[str]) -> str:
        word = match.group(0)
        if word in ("map", *PLAIN):
            return word
        if word == "byte":
            return "uint8"
        place, _, inner = word.rpartition(".")
        place = "v1" if place.endswith("v1") else place
        return f"{place or package.rpartition('.')[2]}.{inner}"

    return re.sub(r"[A-Za-z][\w.]*", full, kind)


if __name__ == "__main__":
    main(*sys.argv[1:4])
