"""Identity: the names of a kind, in URLs, in documents and in the store."""

from functools import cached_property

import msgspec


class ResourceIdentity(
    msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True, weakref=True
):
    """Names one kind in one version."""

    plural: str
    group: str = ""
    version: str = "v1"
    kind: str = ""
    singular: str = ""
    """Defaults to the kind in lower case."""
    list_kind: str = ""
    """Defaults to the kind followed by `List`."""
    namespaced: bool = True
    registry: str = ""
    """The folder of the objects under /registry/; defaults to the plural."""

    def __post_init__(self) -> None:
        self._set_default("singular", self.kind.lower())
        self._set_default("list_kind", f"{self.kind}List")
        self._set_default("registry", self.plural)

    def _set_default(self, name: str, value: str) -> None:
        if not getattr(self, name):
            msgspec.structs.force_setattr(self, name, value)

    @cached_property
    def api_version(self) -> str:
        """`v1` or `apps/v1`, as documents spell it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def prefix(self) -> str:
        """The prefix of the keys of all objects of this kind."""
        return f"/registry/{self.registry}/"

    def key(self, namespace: str, name: str) -> str:
        """The key of one object in the store."""
        return f"{self.prefix}{namespace}/{name}" if namespace else f"{self.prefix}{name}"
