"""Put the fields in the table of built-in types in the order of the Go source of Kubernetes.

    order_schemas.py KUBERNETES SCHEMAS

tools/derive_schemas.py writes SCHEMAS first. Messages that quote an object need the order.
"""

import json
import sys
from pathlib import Path

from derive_internal_types import Package, read


def main(kubernetes: str, schemas: str) -> None:
    packages = published(Path(kubernetes) / "staging/src/k8s.io")
    table = json.loads(Path(schemas).read_text())
    lines = [
        f"{json.dumps(name)}: {json.dumps(ordered(name, fields, packages), separators=(',', ':'))}"
        for name, fields in table.items()
    ]
    Path(schemas).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def published(staging: Path) -> dict[str, Package]:
    """Return the packages of the API by name and version."""
    apis = {
        "meta.v1": "apimachinery/pkg/apis/meta/v1/types.go",
        "apiregistration.v1": "kube-aggregator/pkg/apis/apiregistration/v1/types.go",
        "apiextensions.v1": "apiextensions-apiserver/pkg/apis/apiextensions/v1/types.go",
    }
    packages = {name: read(staging / path) for name, path in apis.items()}
    more = read(staging / "apiextensions-apiserver/pkg/apis/apiextensions/v1/types_jsonschema.go")
    packages["apiextensions.v1"].structs.update(more.structs)
    packages["apiextensions.v1"].aliases.update(more.aliases)
    for path in staging.glob("api/*/*/types.go"):
        packages[f"{path.parts[-3]}.{path.parts[-2]}"] = read(path)
    return packages


def ordered(name: str, fields: dict[str, str], packages: dict[str, Package]) -> dict[str, str]:
    package, _, kind = name.rpartition(".")
    ranks = {tag: rank for rank, tag in enumerate(tags(package, kind, packages))}
    names = sorted(fields, key=lambda field: (field != "", ranks.get(field, len(ranks))))
    return {field: fields[field] for field in names}


def tags(package: str, kind: str, packages: dict[str, Package]) -> list[str]:
    """Return the names of the fields of a type in JSON, in order."""
    if package not in packages or kind not in packages[package].structs:
        return []
    found: list[str] = []
    for member in packages[package].structs[kind]:
        tag = (member.tag or "").partition(",")[0]
        if tag:
            found.append(tag)
        else:
            place, _, inner = member.type.lstrip("*").rpartition(".")
            there = {"metav1": "meta.v1", "v1": "core.v1", "": package}.get(place, place)
            found += tags(there, inner, packages)
    return found


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
