"""The OpenAPI documents of a set of kinds: version 3, one per group and version, and version 2.

Making one takes a while; the caller keeps the bytes until the kinds change.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from kedge.api.openapi_paths import Paths, in_v2, root_path
from kedge.api.openapi_schemas import DELETE_OPTIONS, STATUS, Components, Json
from kedge.api.resource import Resource

Resources = Iterable[Resource[Any]]

_INFO = {"title": "Kubernetes", "version": "unversioned"}
_TOKEN = {
    "type": "apiKey",
    "in": "header",
    "name": "authorization",
    "description": "A bearer token.",
}


def v3_paths(resources: Resources) -> dict[str, tuple[str, str]]:
    """The documents of version 3: group and version by path, which is `apis/apps/v1`."""
    versions = sorted({(resource.group, resource.version) for resource in resources})
    return {root_path(group, version)[1:]: (group, version) for group, version in versions}


def v3_index(hashes: Mapping[str, str]) -> Json:
    """/openapi/v3: where the document of each path is, and the hash that tells its contents."""
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={hashed}"}
            for path, hashed in hashes.items()
        }
    }


def v3_document(
    group: str, version: str, resources: Resources, *, upstream_only: bool = False
) -> Json:
    """/openapi/v3/apis/<group>/<version>."""
    components = Components(v2=False, upstream_only=upstream_only)
    paths = Paths(components)
    for resource in resources:
        if (resource.group, resource.version) == (group, version):
            paths.add(resource)
    _mark_meta(components, {(group, version)})
    return {
        "openapi": "3.0.0",
        "info": _INFO,
        "paths": paths.written,
        "components": {
            "schemas": dict(sorted(components.written.items())),
            "securitySchemes": {"BearerToken": _TOKEN},
        },
    }


def v2_document(resources: Resources, *, upstream_only: bool = False) -> Json:
    """/openapi/v2: everything in one document."""
    components = Components(v2=True, upstream_only=upstream_only)
    paths = Paths(components)
    versions = set()
    for resource in resources:
        paths.add(resource)
        versions.add((resource.group, resource.version))
    _mark_meta(components, versions)
    return {
        "swagger": "2.0",
        "info": _INFO,
        "paths": in_v2(paths.written),
        "definitions": dict(sorted(components.written.items())),
        "securityDefinitions": {"BearerToken": _TOKEN},
        "security": [{"BearerToken": []}],
    }


def _mark_meta(components: Components, versions: set[tuple[str, str]]) -> None:
    """Say which kinds the types are that every group has."""
    gvks = {
        STATUS: [("", "v1", "Status")],
        DELETE_OPTIONS: [(*each, "DeleteOptions") for each in sorted(versions | {("", "v1")})],
    }
    for name, kinds in gvks.items():
        if name in components.written:
            components.written[name]["x-kubernetes-group-version-kind"] = [
                {"group": group, "kind": kind, "version": version} for group, version, kind in kinds
            ]
