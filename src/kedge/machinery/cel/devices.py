"""Values for device selectors: attributes and capacities of a device, by domain and name."""

from typing import Any


class DomainMap(dict[str, dict[str, Any]]):
    """Values by domain and identifier; a domain that the device does not have is empty."""

    __slots__ = ()

    def domain(self, name: str) -> dict[str, Any]:
        """Return the values of a domain, to add to them."""
        return self.setdefault(name, {})

    def __missing__(self, domain: str) -> dict[str, Any]:
        return {}

    def __contains__(self, domain: object) -> bool:
        return isinstance(domain, str)
