"""Cases that change one field of a valid object, each in one request that stores nothing."""

import random
from collections.abc import Sequence
from typing import Any, Final

from tests.differential import fields, samples
from tests.differential.cases import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Case,
    Kind,
    Request,
    folded,
)

DRY: Final = "dryRun=All"
ACTIONS: Final = ("create", "update", "merge", "strategic", "json", "apply", "status")


def probes(kinds: Sequence[Kind], count: int, seed: int) -> list[Case]:
    """Return `count` cases, spread evenly over the kinds; the seed decides which."""
    chance = random.Random(seed)
    pools = [chance.sample(pool, len(pool)) for kind in kinds if (pool := _cells(kind))]
    chosen: list[Case] = []
    while pools and len(chosen) < count:
        for pool in pools:
            kind, path, value, action = pool.pop()
            case = _case(kind, path, value, action)
            if case is not None:
                chosen.append(case)
        pools = [pool for pool in pools if pool]
    return chosen[:count]


_Cell = tuple[Kind, fields.Path, Any, str]


def _cells(kind: Kind) -> list[_Cell]:
    if not samples.has_sample(kind):
        return []
    actions = [each for each in ACTIONS if each != "status" or "status" in kind.subresources]
    return [
        (kind, path, value, action)
        for path, schema in fields.paths(kind.schema)  # type: ignore[arg-type]
        for value in fields.values(schema)
        for action in actions
        if (action == "status") <= (path[0] != "spec")
    ]


def _case(kind: Kind, path: fields.Path, value: Any, action: str) -> Case | None:
    base = samples.sample(kind)
    document = fields.planted(base, kind.schema, path, value)  # type: ignore[arg-type]
    if document is None:
        return None
    request = _request(kind, base, document, path, value, action)
    return Case(kind.label, folded(path), action, (request,)) if request else None


def _request(
    kind: Kind, base: Any, document: Any, path: fields.Path, value: Any, action: str
) -> Request | None:
    here = f"{kind.path}/{base['metadata']['name']}"
    match action:
        case "create":
            if path[:2] != ("metadata", "name"):
                document["metadata"] = _renamed(document["metadata"], kind)
            return Request("POST", kind.path, DRY, document)
        case "update":
            return Request("PUT", here, DRY, document)
        case "status":
            return Request("PUT", f"{here}/status", DRY, document)
        case "merge":
            return Request("PATCH", here, DRY, _only(document, path), MERGE)
        case "strategic":
            return Request("PATCH", here, DRY, _only(document, path), STRATEGIC)
        case "json":
            pointer = "".join(
                f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path
            )
            patch = [{"op": "add", "path": pointer, "value": value}]
            return Request("PATCH", here, DRY, patch, JSON_PATCH)
        case _:
            query = f"{DRY}&fieldManager=applier&force=true"
            return Request("PATCH", here, query, document, APPLY)


def _renamed(metadata: Any, kind: Kind) -> Any:
    if not isinstance(metadata, dict) or kind.name in ("CustomResourceDefinition", "APIService"):
        return metadata
    return {**metadata, "name": samples.name(kind, "fresh7")}


def _only(document: Any, path: fields.Path) -> Any:
    """Return the part of the document on the way to the path: lists whole, siblings left out."""
    if not path or isinstance(path[0], int) or not isinstance(document, dict):
        return document
    return {path[0]: _only(document[path[0]], path[1:])}
