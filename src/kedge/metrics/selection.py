"""UsageSelection: the namespace and the selectors of a list or a watch of usage."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from kedge.machinery.selectors import FieldSelector, LabelRequirements
from kedge.metrics.usage_object import UsageObject

HURRY_NODES: Final = "hurryNodes"
"""The query parameter of a watch which, if it is false, lets nodes keep their own resolution."""

DETAILS: Final = "details"
"""The query parameter of a list which, if it is false, leaves all but cpu and memory out."""


class UsageSelection(NamedTuple):
    """The objects that a list or a watch asks for."""

    namespace: str
    labels: LabelRequirements
    fields: FieldSelector
    hurries_nodes: bool = True
    """Whether nodes report each tick while it is watched, whatever their own resolution is."""

    @property
    def everything(self) -> bool:
        """Whether it selects every object of its namespace."""
        return self.labels.empty and self.fields.empty

    @property
    def node(self) -> str | None:
        """The node to which pods are bound; None for any."""
        return self.fields.exact("spec.nodeName")

    def matches(self, found: UsageObject, labels: Mapping[str, str]) -> bool:
        if self.namespace and found.namespace != self.namespace:
            return False
        if not self.labels.empty and not self.labels.matches(labels):
            return False
        return self.fields.empty or self.fields.matches(lambda name: _field(found, name))


def _field(found: UsageObject, name: str) -> str:
    match name:
        case "metadata.name":
            return found.name
        case "metadata.namespace":
            return found.namespace
        case _:
            return found.node
