"""RecordedRequest: one request that a cluster for tests has answered."""

import msgspec

from kedge.api.testing.fault_rule import RequestFacts


class RecordedRequest(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """A request, who made it, and the outcome."""

    number: int
    """Counts all requests of the server."""
    time: str
    """When the answer was complete, or began to stream."""
    seconds: float
    """From the head of the request to then."""
    user: str
    verb: str
    """Of a resource; the method in lower case for any other path."""
    path: str
    code: int
    """0 if the connection was dropped on purpose."""
    user_agent: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    """Empty for paths that name no resource."""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    """The parameter of a list or watch."""
    continues: bool = False
    """Whether a list asks for another page."""
    dry_run: bool = False
    unchanged: bool = False
    """Whether a write left its object as it was."""
    patch_type: str = ""
    patch: str = ""
    """The beginning of the patch; empty for Secrets."""
    fault: str = ""
    """The rule by which the request failed on purpose."""

    @property
    def facts(self) -> RequestFacts:
        return RequestFacts(
            verb=self.verb,
            resource=self.resource,
            group=self.group,
            subresource=self.subresource,
            namespace=self.namespace,
            name=self.name,
            user=self.user,
            user_agent=self.user_agent,
        )

    def __str__(self) -> str:
        what = "/".join(filter(None, (self.resource, self.subresource))) or self.path
        where = "/".join(filter(None, (self.namespace, self.name)))
        note = " unchanged" if self.unchanged else ""
        words = (self.user, self.verb, what, where)
        return f"#{self.number} {' '.join(filter(None, words))}: {self.code}{note}"


class RequestPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Requests that a server remembers."""

    items: list[RecordedRequest]
    """Oldest first."""
    next: int
    """The number of the next request: the requests since now begin there."""
    forgotten: int = 0
    """Requests that were asked for and are too old to be remembered."""
