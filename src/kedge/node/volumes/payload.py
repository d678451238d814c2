"""Files from API objects: config maps, secrets, tokens and the downward API."""

import asyncio
import base64
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kedge.api.core_v1.config_map import ConfigMap
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.secret import Secret
from kedge.api.core_v1.volume.projection import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    SecretProjection,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from kedge.api.core_v1.volume.volume import Volume
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.pod.dependencies import VolumeFailure
from kedge.node.pod.environment import downward
from kedge.node.pod.environment.downward import DownwardContext, UnresolvableField
from kedge.node.pod.referenced_objects import (
    ConfigObject,
    ConfigObjectKey,
    ConfigObjectWatches,
    ReferencedObjects,
    ServiceAccountToken,
)
from kedge.node.volumes.atomic_writer import VolumeFile

log = logging.getLogger(__name__)
T = TypeVar("T")

MODE: Final = 0o644
MOST_BYTES: Final = 64 << 20
"""Bytes of all files of one volume. Objects are small, but items may name the same key many
times."""
MOST_DOWNWARD: Final = 4 << 20
"""Bytes of one downward API source: each item may hold a copy of all annotations, up to 256 KiB."""
SMALL: Final = 64 << 10
"""Bytes that are worked on in the event loop."""
_ITEM: Final = 64
"""Bytes that an item counts as: forty thousand items of one short key take 80 ms."""
_AT_ONCE: Final = 64
"""Sources of one volume that are read in parallel."""
_TOKEN_MODE: Final = 0o600


class VolumePayload(NamedTuple):
    """The content of a volume, or a part of it."""

    files: dict[str, VolumeFile]
    tokens: Sequence[ServiceAccountToken] = ()
    """The tokens among the files, which have to be renewed."""
    versions: Mapping[ConfigObjectKey, str] = {}
    """The versions of the objects; empty for a missing one."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(len(file.content) for file in self.files.values())


def of(volume: Volume) -> bool:
    """Return whether the volume's files come from API objects."""
    kinds = (volume.configMap, volume.secret, volume.projected, volume.downwardAPI)
    return any(kind is not None for kind in kinds)


def references(pod: Pod) -> set[ConfigObjectKey]:
    """Return the config maps and secrets of the pod's volumes."""
    namespace = pod.metadata.namespace
    return {
        ConfigObjectKey(plural, namespace, name)
        for volume in pod.spec.volumes
        for plural, name in _references(volume)
    }


def _references(volume: Volume) -> Iterator[tuple[str, str]]:
    if volume.configMap is not None:
        yield "configmaps", volume.configMap.name
    if volume.secret is not None:
        yield "secrets", volume.secret.secretName
    for source in volume.projected.sources if volume.projected is not None else ():
        if source.configMap is not None:
            yield "configmaps", source.configMap.name
        if source.secret is not None:
            yield "secrets", source.secret.name


class PayloadCollector:
    """Collects the content of volumes."""

    def __init__(
        self, sources: ReferencedObjects, following: ConfigObjectWatches, clock: Clock
    ) -> None:
        self._sources = sources
        self._following = following
        self._clock = clock

    async def collect(
        self,
        pod: Pod,
        volume: Volume,
        context: DownwardContext,
        known: Sequence[ServiceAccountToken],
    ) -> VolumePayload:
        """Return the files of one volume; known tokens are reused until they need renewal. Raises
        VolumeFailure if something is missing."""
        try:
            return await self._collect(pod, volume, context, known)
        except UnresolvableField as error:
            raise VolumeFailure("FailedMount", str(error)) from error

    async def _collect(
        self,
        pod: Pod,
        volume: Volume,
        context: DownwardContext,
        known: Sequence[ServiceAccountToken],
    ) -> VolumePayload:
        if volume.configMap is not None:
            return await self._config_map(
                pod, volume.configMap, _mode(volume.configMap.defaultMode)
            )
        if volume.secret is not None:
            secret = volume.secret
            projection = SecretProjection(
                name=secret.secretName, items=secret.items, optional=secret.optional
            )
            return await self._secret(pod, projection, _mode(secret.defaultMode))
        if volume.downwardAPI is not None:
            mode = _mode(volume.downwardAPI.defaultMode)
            items = volume.downwardAPI.items
            return VolumePayload(await _downward_files(pod, items, mode, context))
        assert volume.projected is not None
        return await self._projected(pod, volume.projected, context, known)

    async def _projected(
        self,
        pod: Pod,
        volume: ProjectedVolumeSource,
        context: DownwardContext,
        known: Sequence[ServiceAccountToken],
    ) -> VolumePayload:
        """Collect several sources in parallel, since each may be a request to the server."""
        mode, before = _mode(volume.defaultMode), iter(known)
        files: dict[str, VolumeFile] = {}
        tokens: list[ServiceAccountToken] = []
        versions: dict[ConfigObjectKey, str] = {}
        size = 0
        for sources in _slices(volume.sources):
            parts = await gather_all(
                self._projection(
                    pod,
                    source,
                    mode,
                    context,
                    next(before, None) if source.serviceAccountToken is not None else None,
                )
                for source in sources
            )
            for part in parts:
                files |= part.files
                tokens += part.tokens
                versions |= part.versions
                size += part.size
            _check_size(size)
        return VolumePayload(files, tokens, versions)

    async def _projection(
        self,
        pod: Pod,
        source: VolumeProjection,
        mode: int,
        context: DownwardContext,
        before: ServiceAccountToken | None,
    ) -> VolumePayload:
        if source.configMap is not None:
            return await self._config_map(pod, source.configMap, mode)
        if source.secret is not None:
            return await self._secret(pod, source.secret, mode)
        if source.downwardAPI is not None:
            items = source.downwardAPI.items
            return VolumePayload(await _downward_files(pod, items, mode, context))
        if source.serviceAccountToken is not None:
            token = await self._token(pod, source.serviceAccountToken, before)
            file = _token_file(pod, token, mode)
            return VolumePayload({source.serviceAccountToken.path: file}, [token])
        raise VolumeFailure(
            "FailedMount",
            "kedge has no projections but of config maps, secrets, service account tokens and"
            " fields of the pod",
        )

    async def _config_map(
        self, pod: Pod, source: ConfigMapVolumeSource | ConfigMapProjection, mode: int
    ) -> VolumePayload:
        reference = ConfigObjectKey("configmaps", pod.metadata.namespace, source.name)
        found = await self._find(reference)
        if found is None:
            return _missing(reference, "configmap", optional=source.optional)
        assert isinstance(found, ConfigMap)
        what = "configmap references non-existent config key: "
        files = await beside_loop(
            _letters(found.data) + _letters(found.binaryData) + _ITEM * len(source.items),
            lambda: _picked(
                _bytes(found), source.items, mode, what, optional=bool(source.optional)
            ),
        )
        return VolumePayload(files, versions={reference: found.metadata.resourceVersion})

    async def _secret(self, pod: Pod, source: SecretProjection, mode: int) -> VolumePayload:
        reference = ConfigObjectKey("secrets", pod.metadata.namespace, source.name)
        found = await self._find(reference)
        if found is None:
            return _missing(reference, "secret", optional=source.optional)
        assert isinstance(found, Secret)
        what = "references non-existent secret key: "
        files = await beside_loop(
            _letters(found.data) + _ITEM * len(source.items),
            lambda: _picked(_raw(found), source.items, mode, what, optional=bool(source.optional)),
        )
        return VolumePayload(files, versions={reference: found.metadata.resourceVersion})

    async def _find(self, reference: ConfigObjectKey) -> ConfigObject | None:
        """Return an object from its watch, or read it if the watch has not begun."""
        known = self._following.watched(reference)
        return await self._sources.find(reference) if known is None else known.object

    async def _token(
        self, pod: Pod, source: ServiceAccountTokenProjection, before: ServiceAccountToken | None
    ) -> ServiceAccountToken:
        now = self._clock.now()
        if before is not None and not before.is_old(now):
            return before
        try:
            return await self._sources.token(pod, source.audience, source.expirationSeconds)
        except (StatusError, OSError) as error:
            if before is not None and now < before.expires:
                # A token is renewed long before it expires, so that a failure of the server does no
                # harm.
                log.info("token not renewed pod=%s error=%r", pod.metadata.uid, str(error))
                return before
            raise VolumeFailure("FailedMount", f"failed to fetch token: {error}") from error


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; if some fail, raise one VolumeFailure with all messages."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failures = [each for each in results if isinstance(each, BaseException)]
    for failure in failures:
        if not isinstance(failure, VolumeFailure):
            raise failure
    if failures:
        messages = [str(each) for each in failures]
        text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
        raise VolumeFailure("FailedMount", text)
    return [each for each in results if not isinstance(each, BaseException)]


async def beside_loop(size: int, work: Callable[[], T]) -> T:
    """Return the result of work on so many bytes, done in a thread if they are many. While pods
    start, a thread waits up to 5 ms for the interpreter after each system call."""
    return work() if size <= SMALL else await asyncio.to_thread(work)


def _letters(texts: Mapping[str, str]) -> int:
    return sum(len(key) + len(value) for key, value in texts.items())


def _missing(reference: ConfigObjectKey, kind: str, *, optional: bool | None) -> VolumePayload:
    if not optional:
        raise VolumeFailure("FailedMount", f'{kind} "{reference.name}" not found')
    return VolumePayload({}, versions={reference: ""})


def _mode(given: int | None) -> int:
    return MODE if given is None else given


def _bytes(found: ConfigMap) -> dict[str, bytes]:
    text = {key: value.encode() for key, value in found.data.items()}
    return text | {key: base64.b64decode(value) for key, value in found.binaryData.items()}


def _raw(found: Secret) -> dict[str, bytes]:
    return {key: base64.b64decode(value) for key, value in found.data.items()}


def _picked(
    data: Mapping[str, bytes], items: Sequence[KeyToPath], mode: int, what: str, *, optional: bool
) -> dict[str, VolumeFile]:
    """Return all keys under their own names, or only the listed ones under their paths."""
    if not items:
        return {key: VolumeFile(content, mode) for key, content in data.items()}
    files = {}
    size = 0
    for item in items:
        if item.key in data:
            own = mode if item.mode is None else item.mode
            files[item.path] = VolumeFile(data[item.key], own)
            size += len(data[item.key])
            _check_size(size)
        elif not optional:
            raise VolumeFailure("FailedMount", f"{what}{item.key}")
    return files


async def _downward_files(
    pod: Pod, items: Sequence[DownwardAPIVolumeFile], mode: int, context: DownwardContext
) -> dict[str, VolumeFile]:
    meta = pod.metadata
    # Each item may show all annotations, or a field of the longest list of the pod.
    longest = _letters(meta.annotations) + _letters(meta.labels) + 1000
    return await beside_loop(len(items) * longest, lambda: _downward(pod, items, mode, context))


def _downward(
    pod: Pod, items: Sequence[DownwardAPIVolumeFile], mode: int, context: DownwardContext
) -> dict[str, VolumeFile]:
    files = {}
    size = 0
    for item in items:
        text = downward.file(pod, item, context)
        if text is not None:
            own = mode if item.mode is None else item.mode
            files[item.path] = VolumeFile(text.encode(errors="surrogateescape"), own)
            size += len(text)
            _check_size(size, MOST_DOWNWARD)
    return files


def _check_size(size: int, most: int = MOST_BYTES) -> None:
    if size > most:
        raise VolumeFailure("FailedMount", f"its files are larger than {most} bytes together")


def _slices(sources: Sequence[VolumeProjection]) -> Iterator[Sequence[VolumeProjection]]:
    for start in range(0, len(sources), _AT_ONCE):
        yield sources[start : start + _AT_ONCE]


def _token_file(pod: Pod, token: ServiceAccountToken, mode: int) -> VolumeFile:
    """Return the file of a token: only the user of the containers may read it, if they have the
    same user."""
    security = pod.spec.securityContext
    owner = _only_user(pod)
    if owner >= 0 or (security is not None and security.fsGroup is not None):
        mode = _TOKEN_MODE
    return VolumeFile(token.text.encode(), mode, owner)


def _only_user(pod: Pod) -> int:
    """Return the user of all containers; -1 if it is not set, or differs."""
    whole = pod.spec.securityContext
    everywhere = None if whole is None else whole.runAsUser
    users = set()
    everybody = (*pod.spec.initContainers, *pod.spec.containers, *pod.spec.ephemeralContainers)
    for container in everybody:
        own = container.securityContext
        users.add(everywhere if own is None or own.runAsUser is None else own.runAsUser)
    only = users.pop() if len(users) == 1 else None
    return -1 if only is None else only
