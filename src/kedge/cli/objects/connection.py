"""Connection: the server that a kubeconfig leads to, and what the command line means there."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from kedge.api.resource import Resource
from kedge.cli.failure import Failure, ServerRefusal
from kedge.cli.objects.client_flags import ClientConfig
from kedge.cli.objects.complaints import WarningTransport, complaint, next_step
from kedge.cli.objects.discovery_files import DiscoveryFiles
from kedge.cli.objects.targets import ObjectTarget, parse
from kedge.client import login
from kedge.client.client import Client, path_of
from kedge.client.discovery import Discovery
from kedge.client.kubeconfig import KubeconfigError
from kedge.client.login import Login
from kedge.client.transport import Transport, Unreachable
from kedge.machinery.errors import StatusError
from kedge.machinery.foreign_json import without_nulls
from kedge.settings.cluster import CONTEXT_PREFIX

if TYPE_CHECKING:
    from kedge.cli.objects.manifests import Manifest

USER_AGENT = "kedge"
FIELD_MANAGER = "kedge"


class ApiSession(msgspec.Struct, frozen=True):
    """One server, under one identity, seen from one namespace."""

    login: Login
    client: Client
    discovery: Discovery
    given_namespace: str = ""

    @property
    def namespace(self) -> str:
        return self.given_namespace or self.login.namespace or "default"

    def within(self, resource: Resource[Any]) -> str:
        """The namespace in which objects of the resource are looked for."""
        return self.namespace if resource.namespaced else ""

    async def targets(self, words: Sequence[str]) -> list[ObjectTarget]:
        """Resolve words of the command line to types and objects of this server."""
        return parse(words, (await self.discovery.served()).resources)

    def nothing(self, found: Sequence[ObjectTarget], *, everywhere: bool) -> str:
        """Return the message for an empty result."""
        if everywhere or not any(target.resource.namespaced for target in found):
            return "No resources found"
        return f"No resources found in {self.namespace} namespace."

    async def resource_of(self, manifest: "Manifest") -> Resource[Any]:
        """Return the resource of a manifest's kind, even if the kind was defined a moment ago."""
        what = (manifest.api_version, manifest.kind)
        resource = self.discovery.known.of_kind(*what)
        if resource is None:
            resource = (await self.discovery.served()).of_kind(*what)
        if resource is None:
            raise Failure(
                f'resource mapping not found for name: "{manifest.name}" namespace:'
                f' "{manifest.namespace}" from "{manifest.source}": no matches for kind'
                f' "{manifest.kind}" in version "{manifest.api_version}"\n'
                "ensure CRDs are installed first"
            )
        return resource

    def namespace_of(self, manifest: "Manifest", resource: Resource[Any]) -> str:
        """Where the object of a manifest is or goes."""
        if not resource.namespaced:
            return ""
        given, own = self.given_namespace, manifest.namespace
        if given and own and given != own:
            raise Failure(
                f'the namespace from the provided object "{own}" does not match the namespace'
                f" \"{given}\". You must pass '--namespace={own}' to perform this operation."
            )
        return own or self.namespace

    async def get(self, resource: Resource[Any], name: str, namespace: str) -> dict[str, Any]:
        """One object, without the nulls that servers written in Go print."""
        reply = await self.client.send("GET", path_of(resource, namespace, name))
        found: dict[str, Any] = without_nulls(document_in(reply.body))
        return found

    async def list(
        self, resource: Resource[Any], namespace: str, query: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """All objects selected, without nulls; each says itself what it is."""
        reply = await self.client.send("GET", path_of(resource, namespace), query)
        return items_of(without_nulls(document_in(reply.body)), resource)


def document_in(body: bytes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(body)
    return document


def items_of(document: Mapping[str, Any], resource: Resource[Any]) -> list[dict[str, Any]]:
    """The objects of a list, which on the wire do not say what they are."""
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return [{**head, **item} for item in document.get("items") or ()]


Deed = Callable[[ApiSession], Awaitable[int]]


def visit(whereto: ClientConfig, deed: Deed) -> int:
    """Do something at the server that the kubeconfig leads to; the exit code is the deed's."""
    import asyncio

    found = _login(whereto)
    return asyncio.run(_visit(found, found.transport, whereto, deed))


def visit_briefly(whereto: ClientConfig, deed: Deed) -> int:
    """The same for a deed of a few requests that neither waits nor watches. It needs no event loop,
    which takes longer to load than the requests take."""
    from kedge.client.blocking import finish

    found = _login(whereto)
    return finish(_visit(found, found.blocking_transport, whereto, deed))


def _login(whereto: ClientConfig) -> Login:
    try:
        return login.read(whereto.files, whereto.context)
    except KubeconfigError as error:
        raise Failure(
            f"{error}\n'kedge up' starts a cluster and makes its context the current one"
        ) from error


def _unreachable(found: Login, error: str) -> str:
    """Return the message for a server that does not answer. A context of this machine's clusters
    is named after its cluster."""
    told = f"Unable to connect to the server {found.server}: {error}"
    name = found.context.removeprefix(CONTEXT_PREFIX)
    if name == found.context:
        return f"{told}\n'kedge --context NAME' chooses another context of {found.file}"
    return (
        f"{told}\n'kedge status --name {name}' shows its state, 'kedge up --name {name}' starts it"
    )


async def _visit(
    found: Login, transport: Callable[[], Transport], whereto: ClientConfig, deed: Deed
) -> int:
    try:
        client = Client(WarningTransport(transport()), user_agent=USER_AGENT)
    except KubeconfigError as error:
        raise Failure(str(error)) from error
    kept = DiscoveryFiles(whereto.caches, found) if whereto.caches else None
    try:
        return await deed(ApiSession(found, client, Discovery(client, kept), whereto.namespace))
    except Unreachable as error:
        raise ServerRefusal(_unreachable(found, str(error))) from error
    except StatusError as error:
        hint = next_step(error, whereto.namespace or found.namespace or "default")
        raise ServerRefusal("\n".join(filter(None, (complaint(error), hint)))) from error
    finally:
        await client.close()
