"""Pulls images from registries with the OCI distribution protocol over HTTPS."""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import BinaryIO, Final, TypeVar
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from kedge.client.http import HttpTransport
from kedge.client.transport import Call, Stream, Unreachable
from kedge.node.images import oci
from kedge.node.images.archive import LayerBlob, PackedImage, check
from kedge.node.images.credentials import RegistryCredential
from kedge.node.images.oci import (
    INDEXES,
    MANIFESTS,
    ContentDescriptor,
    ImageDocument,
    ImageIndex,
    ImageManifest,
    InvalidImage,
)
from kedge.node.images.reference import HUB, ImageReference
from kedge.node.images.store import chain_id
from kedge.node.images.unpack import ImageLimits

HUB_HOST: Final = "registry-1.docker.io"
_HEAD_SECONDS: Final = 30.0
_PIECE_SECONDS: Final = 60.0
_MOST_REDIRECTS: Final = 5
_AT_ONCE: Final = 3
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_ACCEPT: Final = ", ".join((*INDEXES, *MANIFESTS))
_PARAMETER: Final = re.compile(r'(\w+)="([^"]*)"')

T = TypeVar("T")
Progress = Callable[[int, int], None]
"""Called with the received and the total number of bytes."""


class PullFailure(Exception):
    """The registry did not serve the image."""


class PullUnauthorized(PullFailure):
    """The registry refused access; other credentials may work."""


def _silent(done: int, total: int) -> None:
    """Ignore the progress."""


class ImagePull(msgspec.Struct, frozen=True):
    """A pull: the image, and what the machine already has."""

    name: ImageReference
    scratch: Path
    """The directory for packed layers."""
    has_layer: Callable[[str], bool]
    """Returns whether the layer with a chain id is in the store."""
    limits: ImageLimits
    progress: Progress = _silent


class RegistryClient:
    """A client of all registries.

    `certificates` may hold `HOST/ca.crt` or `HOST:PORT/ca.crt`, the authority to trust for that
    registry instead of the system's.
    """

    def __init__(self, certificates: Path | None = None) -> None:
        self._certificates = certificates

    async def digest(
        self, name: ImageReference, credentials: Sequence[RegistryCredential]
    ) -> "tuple[str, RegistryCredential | None]":
        """Return the current digest of the name, and the credential that the registry accepted."""

        async def ask(session: _RepositorySession) -> str:
            return (await session.manifest(name.digest or name.tag)).digest

        return await self._as_each(name, credentials, ask)

    async def pull(
        self, wanted: ImagePull, credentials: Sequence[RegistryCredential]
    ) -> "tuple[PackedImage, RegistryCredential | None]":
        """Pull an image with the first credential that the registry accepts; return both."""

        async def fetch(session: _RepositorySession) -> PackedImage:
            return await _pull(session, wanted)

        return await self._as_each(wanted.name, credentials, fetch)

    async def _as_each(
        self,
        name: ImageReference,
        credentials: Sequence[RegistryCredential],
        deed: "Callable[[_RepositorySession], Awaitable[T]]",
    ) -> "tuple[T, RegistryCredential | None]":
        refusal = PullUnauthorized("no credential was tried")
        for credential in credentials or (None,):
            try:
                async with _session(self._address(name), name.path, credential) as session:
                    return await deed(session), session.used
            except PullUnauthorized as error:
                refusal = error
            except Unreachable as error:
                raise PullFailure(str(error)) from error
            except TimeoutError as error:
                raise PullFailure(f"{name.domain} stopped answering") from error
        raise refusal

    def _address(self, name: ImageReference) -> "_RegistryAddress":
        host = HUB_HOST if name.domain == HUB else name.domain
        ca_pem = b""
        if self._certificates is not None:
            file = self._certificates / name.domain / "ca.crt"
            ca_pem = file.read_bytes() if file.is_file() else b""
        is_plain = not ca_pem and urlsplit(f"//{host}").hostname in _LOCAL
        return _RegistryAddress(f"{'http' if is_plain else 'https'}://{host}", ca_pem)


async def _pull(session: "_RepositorySession", wanted: ImagePull) -> PackedImage:
    digests, manifest = await _manifest(session, wanted.name)
    content = await session.small(manifest.config, wanted.limits.document_bytes)
    document = oci.decode(content, ImageDocument, "its configuration")
    layers = manifest.layers or ()
    diff_ids = oci.check_layers(document, len(layers))
    missing = _missing(diff_ids, layers, wanted)
    await _download(session, list(missing.values()), wanted)
    blobs = tuple(
        LayerBlob(diff_id, layer.digest, _opener(wanted.scratch, layer.digest))
        for diff_id, layer in zip(diff_ids, layers, strict=True)
    )
    return PackedImage(manifest.config.digest, document, blobs, digests=digests)


async def _manifest(
    session: "_RepositorySession", name: ImageReference
) -> tuple[tuple[str, ...], ImageManifest]:
    """Return the manifest for this machine, and the digests that led to it."""
    found = await session.manifest(name.digest or name.tag)
    digests = [found.digest]
    if found.kind in INDEXES:
        listed = oci.decode(found.content, ImageIndex, "its index").manifests or ()
        picked = oci.pick(listed, oci.this_machine())
        found = await session.manifest(picked.digest)
        digests.append(found.digest)
    if found.kind not in MANIFESTS:
        raise InvalidImage(f'{found.digest} is of the type "{found.kind}", which is no image\'s')
    return tuple(digests), oci.decode(found.content, ImageManifest, "its manifest")


def _missing(
    diff_ids: Sequence[str], layers: Sequence[ContentDescriptor], wanted: ImagePull
) -> dict[str, ContentDescriptor]:
    """Return the missing layers, each once."""
    missing: dict[str, ContentDescriptor] = {}
    chain = ""
    for diff_id, layer in zip(diff_ids, layers, strict=True):
        chain = chain_id(chain, diff_id)
        if layer.size > wanted.limits.layer_bytes:
            raise InvalidImage(
                f"a layer is larger than the {wanted.limits.layer_bytes} bytes allowed"
            )
        if not wanted.has_layer(chain):
            missing[layer.digest] = layer
    return missing


async def _download(
    session: "_RepositorySession", layers: Sequence[ContentDescriptor], wanted: ImagePull
) -> None:
    total, done = sum(layer.size for layer in layers), 0
    turns = asyncio.Semaphore(_AT_ONCE)

    def count(size: int) -> None:
        nonlocal done
        done += size
        wanted.progress(done, total)

    async def download(layer: ContentDescriptor) -> None:
        async with turns:
            with _created(_file(wanted.scratch, layer.digest)) as file:
                await session.save(layer, file, count)

    try:
        async with asyncio.TaskGroup() as group:
            for layer in layers:
                group.create_task(download(layer))
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _created(path: Path) -> BinaryIO:
    # Not in a thread: a cancellation would leave the file open, and opening takes no time.
    return open(path, "wb")


def _opener(scratch: Path, digest: str) -> Callable[[], BinaryIO]:
    def open_blob() -> BinaryIO:
        try:
            return open(_file(scratch, digest), "rb")
        except FileNotFoundError:
            raise InvalidImage(
                "a layer that was here has been removed meanwhile: try again"
            ) from None

    return open_blob


def _file(scratch: Path, digest: str) -> Path:
    value = digest.partition(":")[2]
    if not value.isalnum():
        raise InvalidImage(f'"{digest}" is not a digest')
    return scratch / value


class _RegistryAddress(msgspec.Struct, frozen=True):
    """The address of a registry, and the authority that its certificate is verified with."""

    url: str
    ca_pem: bytes


class _FetchedManifest(msgspec.Struct, frozen=True):
    """A manifest or an index."""

    digest: str
    kind: str
    content: bytes


@asynccontextmanager
async def _session(
    address: _RegistryAddress, repository: str, credential: RegistryCredential | None
) -> AsyncIterator["_RepositorySession"]:
    session = _RepositorySession(address, repository, credential)
    try:
        yield session
    finally:
        await session.close()


class _RepositorySession:
    """A session with one repository of one registry, with one credential."""

    def __init__(
        self, address: _RegistryAddress, repository: str, credential: RegistryCredential | None
    ) -> None:
        self._address = address
        self._repository = repository
        self._credential = credential
        self._authorization = ""
        self._transports: dict[str, HttpTransport] = {}

    @property
    def used(self) -> RegistryCredential | None:
        """The credential that the registry requested; None for a public image."""
        return self._credential if self._authorization else None

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()

    async def manifest(self, reference: str) -> _FetchedManifest:
        path = f"/v2/{self._repository}/manifests/{reference}"
        async with self._get(path, {"accept": _ACCEPT}) as stream:
            content = await _whole(stream, ImageLimits().document_bytes)
            kind = stream.headers.get("content-type", "").partition(";")[0].strip()
        if ":" in reference:
            check(content, reference)
            return _FetchedManifest(reference, kind, content)
        return _FetchedManifest(f"sha256:{hashlib.sha256(content).hexdigest()}", kind, content)

    async def small(self, described: ContentDescriptor, limit: int) -> bytes:
        """Return a small blob, such as a configuration."""
        async with self._get(self._blob(described.digest)) as stream:
            content = await _whole(stream, limit)
        check(content, described.digest)
        return content

    async def save(
        self, described: ContentDescriptor, file: BinaryIO, count: Callable[[int], None]
    ) -> None:
        """Write a blob to a file; unpacking verifies its digest."""
        size = 0
        async with self._get(self._blob(described.digest)) as stream:
            async for piece in _pieces(stream):
                size += len(piece)
                if size > described.size:
                    raise InvalidImage(f"{described.digest} is larger than its manifest says")
                file.write(piece)
                count(len(piece))
        if size != described.size:
            raise PullFailure(f"{described.digest} ended after {size} of {described.size} bytes")

    def _blob(self, digest: str) -> str:
        return f"/v2/{self._repository}/blobs/{digest}"

    @asynccontextmanager
    async def _get(self, path: str, headers: dict[str, str] | None = None) -> AsyncIterator[Stream]:
        """Send a request; authenticate and follow redirects as the registry demands."""
        url = self._address.url + path
        asked_for_permission = False
        async with AsyncExitStack() as stack:
            for _ in range(_MOST_REDIRECTS):
                stream = await self._open(stack, url, headers or {})
                if stream.status in (301, 302, 303, 307, 308):
                    url = self._checked(urljoin(url, stream.headers.get("location", "")))
                    continue
                if stream.status == 401 and not asked_for_permission:
                    asked_for_permission = True
                    await self._ask_for_permission(stream.headers.get("www-authenticate", ""))
                    continue
                if stream.status != 200:
                    raise await _failure(stream, path)
                yield stream
                return
        raise PullFailure("too many redirects")

    async def _open(self, stack: AsyncExitStack, url: str, headers: dict[str, str]) -> Stream:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        sent = {"user-agent": "kedge", **headers}
        # The target of a redirect must not receive the credentials.
        if self._authorization and origin == self._address.url:
            sent["authorization"] = self._authorization
        call = Call("GET", parts.path or "/", parts.query, sent)
        async with asyncio.timeout(_HEAD_SECONDS):
            return await stack.enter_async_context(self._transport(origin).stream(call))

    def _transport(self, origin: str) -> HttpTransport:
        if origin not in self._transports:
            ca_pem = self._address.ca_pem if origin == self._address.url else b""
            self._transports[origin] = HttpTransport(origin, ca_pem=ca_pem)
        return self._transports[origin]

    async def _ask_for_permission(self, challenge: str) -> None:
        """Authenticate by the registry's challenge."""
        scheme = challenge.partition(" ")[0].lower()
        if scheme == "basic" and self._credential:
            self._authorization = self._credential.basic
        elif scheme == "bearer":
            self._authorization = f"Bearer {await self._token(challenge)}"
        elif scheme == "basic":
            raise PullUnauthorized("the registry requires authentication: add a pull secret")
        else:
            raise PullFailure(f'the registry requires authentication by "{scheme}": not supported')

    def _checked(self, url: str) -> str:
        """Refuse redirects to plain HTTP, except to the registry itself.

        Services that listen on loopback without TLS often trust every client. Any registry could
        otherwise make this node send them requests. Over
        HTTPS such a service would need a certificate that this machine trusts.
        """
        parts = urlsplit(url)
        if parts.scheme == "https" or f"{parts.scheme}://{parts.netloc}" == self._address.url:
            return url
        raise PullFailure(f'the registry redirects to "{url}", which is not HTTPS')

    async def _token(self, challenge: str) -> str:
        said = dict(_PARAMETER.findall(challenge))
        realm = self._checked(said.get("realm", ""))
        scope = said.get("scope") or f"repository:{self._repository}:pull"
        query = urlencode({"service": said.get("service", ""), "scope": scope})
        headers = {"authorization": self._credential.basic} if self._credential else {}
        async with AsyncExitStack() as stack:
            url = f"{realm}{'&' if '?' in realm else '?'}{query}"
            stream = await self._open(stack, url, headers)
            if stream.status != 200:
                raise await _failure(stream, "its token")
            content = await _whole(stream, ImageLimits().document_bytes)
        grant = oci.decode(content, _TokenResponse, "the registry's token")
        if not (token := grant.token or grant.access_token):
            raise PullFailure("the registry returned no token")
        return token


class _TokenResponse(msgspec.Struct, frozen=True):
    token: str = ""
    access_token: str = ""


class _RegistryError(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _RegistryErrors(msgspec.Struct, frozen=True):
    errors: list[_RegistryError] = []


async def _failure(stream: Stream, what: str) -> PullFailure:
    """Return the error of a response without success, with the registry's message if it has one."""
    if stream.status == 404:
        return PullFailure("not found in the registry")
    words = ""
    try:
        content = await _whole(stream, 1 << 16)
        said = msgspec.json.decode(content, type=_RegistryErrors).errors
        words = "; ".join(each.message or each.code for each in said)
    except (msgspec.MsgspecError, InvalidImage):
        pass
    if stream.status in (401, 403):
        denied = f": {words}" if words else ""
        return PullUnauthorized(
            f"the registry denies access{denied} (it may not exist, or need a pull secret)"
        )
    return PullFailure(f"the registry answers {stream.status} for {what}: {words or 'no reason'}")


async def _whole(stream: Stream, limit: int) -> bytes:
    content = bytearray()
    async for piece in _pieces(stream):
        content += piece
        if len(content) > limit:
            raise InvalidImage(f"a document is larger than the {limit} bytes that are allowed")
    return bytes(content)


async def _pieces(stream: Stream) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(_PIECE_SECONDS):
            try:
                piece = await anext(stream.pieces)
            except StopAsyncIteration:
                return
        yield piece
