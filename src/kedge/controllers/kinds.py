"""ServedKinds: the resources that can be watched, including custom ones."""

from collections.abc import Iterable, Iterator

import msgspec

from kedge.api.apiextensions_v1.custom_resource_definition import RESOURCE
from kedge.api.model import Document
from kedge.api.resource import ALL_VERBS, Resource
from kedge.client.discovery import ServedResources
from kedge.client.view import View, sketches

IGNORED = (("", "events"), ("events.k8s.io", "events"))
"""Resources too many and too short-lived to be followed; upstream leaves them out as well."""


class _DefinitionMeta(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str = ""


class _DefinitionNames(msgspec.Struct, frozen=True, gc=False):
    plural: str = ""
    kind: str = ""


class _DefinitionVersion(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    served: bool = False


class _DefinitionSpec(msgspec.Struct, frozen=True, gc=False):
    group: str = ""
    scope: str = ""
    names: _DefinitionNames = _DefinitionNames()
    versions: tuple[_DefinitionVersion, ...] = ()


class _DefinitionCondition(msgspec.Struct, frozen=True, gc=False):
    type: str = ""
    status: str = ""


class _DefinitionStatus(msgspec.Struct, frozen=True, gc=False):
    conditions: tuple[_DefinitionCondition, ...] = ()


class PartialDefinition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition, reduced to its names and versions."""

    metadata: _DefinitionMeta
    spec: _DefinitionSpec = _DefinitionSpec()
    status: _DefinitionStatus = _DefinitionStatus()

    @property
    def established(self) -> bool:
        return _DefinitionCondition("Established", "True") in self.status.conditions

    def resources(self) -> list[Resource[Document]]:
        """One resource for each version that is served."""
        spec = self.spec
        return [
            Resource(
                type=Document,
                group=spec.group,
                version=version.name,
                plural=spec.names.plural,
                kind=spec.names.kind,
                namespaced=spec.scope == "Namespaced",
                verbs=ALL_VERBS,
            )
            for version in spec.versions
            if version.served
        ]


def definitions() -> View[PartialDefinition]:
    return sketches(RESOURCE, PartialDefinition)


class ServedKinds:
    """The served kinds: built-in kinds from discovery, custom kinds from their definitions.

    Definitions are trusted over discovery, which lags behind them for a moment.
    """

    def __init__(self, served: ServedResources, defined: Iterable[PartialDefinition]) -> None:
        defined = list(defined)
        names = {definition.metadata.name for definition in defined}
        self._served = ServedResources(
            each for each in served.resources if f"{each.plural}.{each.group}" not in names
        )
        custom = [each for each in defined if each.established]
        self._custom = ServedResources(
            each for definition in custom for each in definition.resources()
        )

    def followed(self) -> Iterator[Resource[Document]]:
        """The resources whose objects can be owned, in one version each."""
        for kinds in (self._served, self._custom):
            for resource in kinds.preferred("delete", "list", "watch"):
                if (resource.group, resource.plural) not in IGNORED:
                    yield resource

    def of_kind(self, api_version: str, kind: str) -> Resource[Document] | None:
        return self._custom.of_kind(api_version, kind) or self._served.of_kind(api_version, kind)
