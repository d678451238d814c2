"""Derive the table of zero values from the Go source of Kubernetes.

    derive_zero_values.py KUBERNETES SCHEMAS OUT

Of the types in the table SCHEMAS, OUT lists how fields with a zero value are written.
kedge/api/builtin/zero_values.py reads it and describes its format.
"""

import json
import sys
from pathlib import Path

from derive_internal_types import Package, base, qualified, read, resolved

CODES = {"s": "s", "b": "b", "i": "i", "t": "n", "q": "q", "o": "i", "y": "n", "[": "n", "{": "n"}


def main(kubernetes: str, schemas: str, out: str) -> None:
    staging = Path(kubernetes) / "staging/src/k8s.io"
    packages = {
        folder.name: read(folder / "v1/types.go")
        for folder in (staging / "api").iterdir()
        if (folder / "v1/types.go").exists()
    }
    packages["metav1"] = read(staging / "apimachinery/pkg/apis/meta/v1/types.go")
    aggregator = staging / "kube-aggregator/pkg/apis/apiregistration/v1/types.go"
    packages["apiregistration"] = read(aggregator)
    table = {}
    for name in json.loads(Path(schemas).read_text()):
        package, version, kind = name.split(".") if name.count(".") == 2 else ("", "", "")
        package = {"meta": "metav1"}.get(package, package)
        known = version == "v1" and kind in packages.get(package, Package({}, {})).structs
        if known and (found := fields(f"{package}.{kind}", packages)):
            table[name] = found
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    Path(out).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def fields(full: str, packages: dict[str, Package]) -> dict[str, str]:
    package, name = full.split(".")
    found: dict[str, str] = {}
    for member in packages[package].structs[name]:
        tag, _, options = (member.tag or "").partition(",")
        kind = qualified(member.type.replace("v1.", "core."), package)
        if "inline" in options or not member.name:
            inner = kind.lstrip("*")
            if (
                inner.partition(".")[2]
                in packages.get(inner.partition(".")[0], Package({}, {})).structs
            ):
                found |= fields(inner, packages)
            continue
        try:
            kind = resolved(kind, packages)
        except ValueError:
            continue
        if tag and not kind.startswith("*") and (code := code_of(kind, options)):
            found[tag] = code
    return found


def code_of(kind: str, options: str) -> str:
    is_struct = "." in kind and kind == base(kind)
    if "omitzero" in options:
        return "-"
    if is_struct:
        return "o"
    if "omitempty" in options and kind[0] not in "tqo":
        return "-"
    return CODES[kind[0]]


if __name__ == "__main__":
    main(*sys.argv[1:])
