"""Discovery documents in both formats: pure functions of the served resources.

The caller caches the answers as bytes: they change only with the CRDs.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from kedge.api.resource import Resource, Subresource
from kedge.apiserver.group_priorities import group_rank

Resources = Iterable[Resource[Any]]
Json = dict[str, Any]

_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_STABILITY = {"alpha": 2, "beta": 1, None: 0}


def aggregated_core(resources: Resources) -> Json:
    """/api in one document."""
    return _aggregated(_groups(resource for resource in resources if not resource.group))


def aggregated(resources: Resources) -> Json:
    """/apis in one document."""
    return _aggregated(_groups(resource for resource in resources if resource.group))


def api_versions(address: str) -> Json:
    """/api of old: the versions of the core group, and where the server is."""
    where = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": where}


def group_list(resources: Resources) -> Json:
    """/apis of old: all groups but the core one."""
    groups = _groups(resource for resource in resources if resource.group)
    listed = [_group(name, versions) for name, versions in groups]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(resources: Resources, name: str) -> Json | None:
    """/apis/<group>, or None if there is no such group."""
    for found, versions in _groups(resource for resource in resources if resource.group == name):
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(found, versions)}
    return None


def resource_list(resources: Resources, group: str, version: str) -> Json | None:
    """/api/v1 or /apis/<group>/<version>, or None if there is no such version."""
    found = [each for each in resources if (each.group, each.version) == (group, version)]
    if not found:
        return None
    # The oldest document of all leaves out its apiVersion.
    head: Json = {"kind": "APIResourceList"} | ({"apiVersion": "v1"} if group else {})
    lines = [line for resource in _by_name(found) for line in _legacy_lines(resource)]
    return head | {"groupVersion": found[0].api_version, "resources": lines}


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts versions by preference: v2, v1, v1beta2, v1beta1, v1alpha1, then anything else."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return 3, 0, 0, version
    major, stage, minor = match.groups()
    return _STABILITY[stage], -int(major), -int(minor or 0), version


def _groups(resources: Resources) -> list[tuple[str, list[list[Resource[Any]]]]]:
    """Resources by group and version, the preferred ones first."""

    def by_group(resource: Resource[Any]) -> tuple[int, str]:
        return group_rank(resource.group), resource.group

    def by_version(resource: Resource[Any]) -> tuple[int, int, int, str]:
        return version_order(resource.version)

    return [
        (name, [_by_name(each) for _, each in groupby(sorted(members, key=by_version), by_version)])
        for (_, name), members in groupby(sorted(resources, key=by_group), by_group)
    ]


def _by_name(resources: Resources) -> list[Resource[Any]]:
    return sorted(resources, key=lambda resource: resource.plural)


def _subresources(resource: Resource[Any]) -> Sequence[Subresource]:
    return sorted(resource.subresources, key=lambda sub: sub.name)


def _aggregated(groups: list[tuple[str, list[list[Resource[Any]]]]]) -> Json:
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [_aggregated_version(resources) for resources in versions],
        }
        for name, versions in groups
    ]
    head = {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2"}
    return head | {"metadata": {}, "items": items}


def _aggregated_version(resources: list[Resource[Any]]) -> Json:
    return {
        "version": resources[0].version,
        "resources": [_aggregated_resource(resource) for resource in resources],
        "freshness": "Current",
    }


def _aggregated_resource(resource: Resource[Any]) -> Json:
    entry: Json = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.subresources:
        entry["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": _response_kind(sub, resource),
                "verbs": list(sub.verbs),
            }
            for sub in _subresources(resource)
        ]
    return entry | _nicknames(resource)


def _response_kind(sub: Subresource, resource: Resource[Any]) -> Json:
    return {"group": sub.group, "version": sub.version, "kind": sub.kind or resource.kind}


def _nicknames(resource: Resource[Any]) -> Json:
    entry: Json = {}
    if resource.presentation.short_names:
        entry["shortNames"] = list(resource.presentation.short_names)
    if resource.presentation.categories:
        entry["categories"] = list(resource.presentation.categories)
    return entry


def _group(name: str, versions: list[list[Resource[Any]]]) -> Json:
    listed = [
        {"groupVersion": resources[0].api_version, "version": resources[0].version}
        for resources in versions
    ]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _legacy_lines(resource: Resource[Any]) -> Iterable[Json]:
    line: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_nicknames(resource),
    }
    if "watch" in resource.verbs and resource.is_stored:
        line["storageVersionHash"] = storage_version_hash(resource)
    yield line
    for sub in _subresources(resource):
        yield {
            "name": f"{resource.plural}/{sub.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **({"group": sub.group, "version": sub.version} if sub.version else {}),
            "kind": sub.kind or resource.kind,
            "verbs": list(sub.verbs),
        }


def storage_version_hash(resource: Resource[Any]) -> str:
    """Tells clients whether two versions of a kind are the same objects."""
    stored = resource.store_as.resource if resource.store_as else resource
    named = f"{stored.group}/{stored.version}/{stored.kind}"
    return base64.b64encode(hashlib.sha256(named.encode()).digest()[:8]).decode()
