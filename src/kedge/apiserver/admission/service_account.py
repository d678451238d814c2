"""ServiceAccount: every pod acts as an account that exists, and is given a token of it."""

from collections.abc import Iterable, Iterator, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1 import service_account
from kedge.api.core_v1.pod.container import Container, EphemeralContainer, VolumeMount
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodSpec
from kedge.api.core_v1.references import LocalObjectReference, ObjectFieldSelector
from kedge.api.core_v1.volume.projection import (
    ConfigMapProjection,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    VolumeProjection,
)
from kedge.api.core_v1.volume.volume import Volume
from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.admission.mirror_pods import is_mirror, projections, referred
from kedge.apiserver.admission.refusal import refused
from kedge.apiserver.authentication.service_accounts import TOKEN_SECONDS
from kedge.apiserver.watchcache import Change, Item, ResourceCache
from kedge.machinery import names
from kedge.machinery.clock import Clock

DEFAULT = "default"
VOLUME_PREFIX = "kube-api-access-"
MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
MOUNTABLE_ONLY = "kubernetes.io/enforce-mountable-secrets"

PATIENCE = 10
INTERVAL = 0.1
"""A new namespace gets its default account a moment after it is made: that long it is awaited."""

_TRUE = ("1", "t", "T", "TRUE", "true", "True")

TOKEN_VOLUME = ProjectedVolumeSource(
    defaultMode=0o644,
    sources=[
        VolumeProjection(
            serviceAccountToken=ServiceAccountTokenProjection(
                path="token", expirationSeconds=TOKEN_SECONDS
            )
        ),
        VolumeProjection(
            configMap=ConfigMapProjection(
                name="kube-root-ca.crt", items=[KeyToPath(key="ca.crt", path="ca.crt")]
            )
        ),
        VolumeProjection(
            downwardAPI=DownwardAPIProjection(
                items=[
                    DownwardAPIVolumeFile(
                        path="namespace",
                        fieldRef=ObjectFieldSelector(
                            apiVersion="v1", fieldPath="metadata.namespace"
                        ),
                    ),
                ]
            )
        ),
    ],
)


class AccountSettings(msgspec.Struct, frozen=True):
    """A service account, reduced to what its pods get from it."""

    name: str
    automount: bool
    pull_secrets: Sequence[LocalObjectReference]
    mountable: frozenset[str] | None
    """The secrets that its pods may use; None if it does not say."""


class ServiceAccountPlugin:
    """Makes a pod run as an existing ServiceAccount, `default` if it names none, and mounts a token
    of it unless that is turned off."""

    name = "ServiceAccount"

    def __init__(self, accounts: ResourceCache, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._accounts: dict[str, AccountSettings] = {}
        """By the keys under which they are stored."""
        for item in accounts.values():
            self._take(item)
        accounts.listeners.add(self._follow)

    def _follow(self, change: Change | None) -> None:
        if change is None:
            return
        if change.type == "DELETED":
            self._accounts.pop(change.item.key, None)
        else:
            self._take(change.item)

    def _take(self, item: Item) -> None:
        self._accounts[item.key] = compiled(service_account.RESOURCE.decode(item.body))

    async def mutate(self, attempt: Attempt) -> Object | None:
        pod = attempt.object
        if not isinstance(pod, Pod) or attempt.operation != "CREATE" or attempt.request.subresource:
            return pod
        # The node that made a mirror pod would not know it again after any change.
        if is_mirror(pod):
            _check_mirror(attempt, pod)
            return pod
        spec = pod.spec
        if not spec.serviceAccountName:
            spec = replace(spec, serviceAccountName=DEFAULT, serviceAccount=DEFAULT)
        account = await self._account(attempt, spec)
        wanted = spec.automountServiceAccountToken
        if account.automount if wanted is None else wanted:
            spec = with_token(spec, self._random)
        if account.pull_secrets and not spec.imagePullSecrets:
            spec = replace(spec, imagePullSecrets=account.pull_secrets)
        _check_secrets(attempt, account, foreign(spec, account))
        return replace(pod, spec=spec)

    async def validate(self, attempt: Attempt) -> None:
        """The same once more: other plugins may have changed the pod since."""
        pod, request = attempt.object, attempt.request
        if not isinstance(pod, Pod):
            return
        if attempt.operation == "CREATE" and not request.subresource:
            if is_mirror(pod):
                _check_mirror(attempt, pod)
            else:
                account = await self._account(attempt, pod.spec)
                _check_secrets(attempt, account, foreign(pod.spec, account))
        elif attempt.operation == "UPDATE" and request.subresource == "ephemeralcontainers":
            account = await self._account(attempt, pod.spec)
            used = _variables("ephemeral container", pod.spec.ephemeralContainers)
            _check_secrets(attempt, account, _foreign(used, account))

    async def _account(self, attempt: Attempt, spec: PodSpec) -> AccountSettings:
        """The account that the pod names; 403 if there is none."""
        namespace, name = attempt.request.namespace, spec.serviceAccountName
        if not name:
            pod = attempt.request.name
            raise refused(attempt, f"no service account specified for pod {namespace}/{pod}")
        key = service_account.RESOURCE.key(namespace, name)
        account = self._accounts.get(key)
        if account is None and name == DEFAULT:
            account = await self._awaited(key)
        if account is None:
            why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}"'
            raise refused(attempt, f"{why} not found")
        return account

    async def _awaited(self, key: str) -> AccountSettings | None:
        for _ in range(PATIENCE):
            await self._clock.sleep(INTERVAL)
            if (account := self._accounts.get(key)) is not None:
                return account
        return None


def compiled(account: service_account.ServiceAccount) -> AccountSettings:
    """Return the settings of a service account that affect pods."""
    strict = account.metadata.annotations.get(MOUNTABLE_ONLY) in _TRUE
    return AccountSettings(
        account.metadata.name,
        automount=account.automountServiceAccountToken is not False,
        pull_secrets=[LocalObjectReference(name=s.name) for s in account.imagePullSecrets],
        mountable=frozenset(secret.name for secret in account.secrets) if strict else None,
    )


# The token.


def with_token(spec: PodSpec, random: Random) -> PodSpec:
    """The spec with the token where every container that has nothing there looks for it."""
    own = next((v.name for v in spec.volumes if v.name.startswith(VOLUME_PREFIX)), "")
    name = own or names.generate_name(VOLUME_PREFIX, random)
    mount = VolumeMount(name=name, readOnly=True, mountPath=MOUNT_PATH)
    containers = _mounting(spec.containers, mount)
    init = _mounting(spec.initContainers, mount)
    if containers is spec.containers and init is spec.initContainers:
        return spec
    volumes = spec.volumes if own else [*spec.volumes, Volume(name=name, projected=TOKEN_VOLUME)]
    return replace(spec, containers=containers, initContainers=init, volumes=volumes)


def _mounting(containers: Sequence[Container], mount: VolumeMount) -> Sequence[Container]:
    """The containers with the mount; the very same ones if none needs it."""
    if all(_has_it(each) for each in containers):
        return containers
    return [
        each if _has_it(each) else replace(each, volumeMounts=[*each.volumeMounts, mount])
        for each in containers
    ]


def _has_it(container: Container) -> bool:
    return any(mount.mountPath == MOUNT_PATH for mount in container.volumeMounts)


# Secrets.


def foreign(spec: PodSpec, account: AccountSettings) -> Iterator[str]:
    """Yield an error for each secret that a pod uses and that its account does not list.

    Only accounts that enforce mountable secrets are checked.
    """
    if account.mountable is None:
        return
    volumes = (
        ("volume with", volume.secret.secretName)
        for volume in spec.volumes
        if volume.secret is not None
    )
    yield from _foreign(volumes, account)
    yield from _foreign(_variables("init container", spec.initContainers), account)
    yield from _foreign(_variables("container", spec.containers), account)
    pull_secrets = {secret.name for secret in account.pull_secrets}
    for i, secret in enumerate(spec.imagePullSecrets):
        if secret.name not in pull_secrets:
            yield (
                f'imagePullSecrets[{i}].name="{secret.name}" is not allowed because service '
                f"account {account.name} does not reference that imagePullSecret"
            )


def _foreign(used: Iterable[tuple[str, str]], account: AccountSettings) -> Iterator[str]:
    for user, secret in used:
        if account.mountable is not None and secret not in account.mountable:
            yield (
                f'{user} secret.secretName="{secret}" is not allowed because service account '
                f"{account.name} does not reference that secret"
            )


def _variables(
    sort: str, containers: Iterable[Container | EphemeralContainer]
) -> Iterator[tuple[str, str]]:
    """The variables that come from secrets, in the words of an error, and the secrets."""
    for container in containers:
        for variable in container.env:
            source = variable.valueFrom
            if source is not None and source.secretKeyRef is not None:
                user = f"{sort} {container.name} with envVar {variable.name} referencing"
                yield user, source.secretKeyRef.name
        for origin in container.envFrom:
            if origin.secretRef is not None:
                yield f"{sort} {container.name} with envFrom referencing", origin.secretRef.name


def _check_secrets(attempt: Attempt, account: AccountSettings, wrong: Iterator[str]) -> None:
    for why in wrong:
        raise refused(attempt, why)


def _check_mirror(attempt: Attempt, pod: Pod) -> None:
    """A mirror pod is an image of what a node runs already: it can refer to nothing here."""
    if pod.spec.serviceAccountName:
        raise refused(attempt, "a mirror pod may not reference service accounts")
    if "secrets" in referred(pod):
        raise refused(attempt, "a mirror pod may not reference secrets")
    if any(part.serviceAccountToken is not None for part in projections(pod)):
        raise refused(attempt, "a mirror pod may not use ServiceAccountToken volume projections")
