"""RemoteDocuments: what extension servers add to the discovery and OpenAPI documents."""

from typing import Any

import msgspec

from kedge.apiserver.discovery import version_order
from kedge.apiserver.group_priorities import GroupPriority, priority

Json = dict[str, Any]
GroupVersion = tuple[str, str]


class RemoteDocument(msgspec.Struct, frozen=True):
    """The priority and the discovery document of one remote version."""

    priority: GroupPriority
    resources: list[Json] = []
    """In the form of aggregated discovery."""
    is_current: bool = False
    """Whether the extension server answered the last time."""
    openapi_hash: str = ""
    """Changes with the OpenAPI document; empty if the server has none."""


class RemoteDocuments:
    """The remote versions, and functions that add them to documents of this server's own."""

    def __init__(self) -> None:
        self.changes = 0
        """Counts changes, so that documents can tell when to be made anew."""
        self._versions: dict[GroupVersion, RemoteDocument] = {}

    def get(self, group: str, version: str) -> RemoteDocument | None:
        return self._versions.get((group, version))

    def put(self, group: str, version: str, document: RemoteDocument) -> None:
        if self._versions.get((group, version)) != document:
            self._versions[group, version] = document
            self.changes += 1

    def remove(self, group: str, version: str) -> None:
        if self._versions.pop((group, version), None) is not None:
            self.changes += 1

    def merged_aggregated(self, own: Json) -> Json:
        """Return aggregated discovery of /apis with the remote versions. A remote version replaces
        this server's own one, because requests go to the remote one."""
        if not self._versions:
            return own
        return own | {"items": self._merged_items(own["items"])}

    def merged_groups(self, own: Json) -> Json:
        """Return the list of groups with the remote versions."""
        if not self._versions:
            return own
        return own | {"groups": self._merged_groups(own["groups"])}

    def merged_group(self, name: str, own: Json | None) -> Json | None:
        """Return one group with its remote versions; None if there is no such group."""
        if not self._versions:
            return own
        merged = self._merged_groups([own] if own is not None else [])
        found = next((each for each in merged if each["name"] == name), None)
        return None if found is None else {"kind": "APIGroup", "apiVersion": "v1", **found}

    def merged_openapi_index(self, own: Json) -> Json:
        """Return the index of OpenAPI v3 with the remote documents."""
        if not self._versions:
            return own
        paths = dict(own["paths"])
        for (group, version), document in self._versions.items():
            path = f"apis/{group}/{version}"
            paths.pop(path, None)
            if document.openapi_hash:
                url = f"/openapi/v3/{path}?hash={document.openapi_hash}"
                paths[path] = {"serverRelativeURL": url}
        return {"paths": dict(sorted(paths.items()))}

    def _merged_items(self, own: list[Json]) -> list[Json]:
        versions = {
            (item["metadata"]["name"], each["version"]): each
            for item in own
            for each in item["versions"]
        }
        for (group, version), document in self._versions.items():
            versions[group, version] = {
                "version": version,
                "resources": document.resources,
                "freshness": "Current" if document.is_current else "Stale",
            }
        return [
            {"metadata": {"name": group}, "versions": [versions[group, each] for each in names]}
            for group, names in self._ordered(versions)
        ]

    def _merged_groups(self, own: list[Json]) -> list[Json]:
        known = {(each["name"], one["version"]) for each in own for one in each["versions"]}
        return [_group(group, names) for group, names in self._ordered(known | {*self._versions})]

    def _ordered(self, versions: Any) -> list[tuple[str, list[str]]]:
        """Return the groups with their versions, the preferred ones first."""
        groups: dict[str, list[tuple[GroupPriority, str]]] = {}
        for group, version in versions:
            document = self._versions.get((group, version))
            rank = priority(group, version) if document is None else document.priority
            groups.setdefault(group, []).append((rank, version))

        def by_group(item: tuple[str, list[tuple[GroupPriority, str]]]) -> tuple[int, str]:
            return -max(rank.group for rank, _ in item[1]), item[0]

        def by_version(item: tuple[GroupPriority, str]) -> tuple[int, tuple[int, int, int, str]]:
            return -item[0].version, version_order(item[1])

        return [
            (group, [version for _, version in sorted(found, key=by_version)])
            for group, found in sorted(groups.items(), key=by_group)
        ]


def _group(name: str, versions: list[str]) -> Json:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}
