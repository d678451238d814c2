"""ResourceClaimController: makes claims from templates, and frees claims that no pod uses."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.api.core_v1.pod.pod import RESOURCE as PODS
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.spec import PodResourceClaim
from kedge.api.model import ObjectMeta, OwnerReference
from kedge.api.resource_v1 import resource_claim_template
from kedge.api.resource_v1.pod_claims import (
    ClaimMissing,
    check_owner,
    claim_name,
    consumer,
    is_reserved,
    known_names,
    needs_no_claims,
)
from kedge.api.resource_v1.resource_claim import (
    FINALIZER,
    POD_CLAIM_NAME,
    RESOURCE,
    ResourceClaim,
)
from kedge.api.resource_v1.resource_claim_status import ResourceClaimConsumerReference
from kedge.api.resource_v1.resource_claim_template import ResourceClaimTemplate
from kedge.client.client import STRATEGIC_PATCH, Client
from kedge.client.events import WARNING, Recorder
from kedge.client.informer import Key
from kedge.controllers.loop import ControllerLoop, together
from kedge.controllers.shared_informers import SharedInformers, controller_of, key_of
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError

COMPONENT: Final = "resource_claim"
WORKERS: Final = 10
MOST_PREFIX: Final = 57
"""Leaves room for the random end of a generated name in 63 characters."""


class ClaimTask(NamedTuple):
    """A pod or a claim to look at."""

    plural: str
    key: Key


class ClaimCreationFailed(Exception):
    """A claim could not be made from its template."""


class ResourceClaimController:
    """Looks at a pod when it or its templates change, and at a claim when its pods do."""

    def __init__(self, client: Client, shared: SharedInformers, clock: Clock) -> None:
        self._client = client
        self._pods = shared.of(PODS)
        self._claims = shared.of(RESOURCE)
        self._templates = shared.of(resource_claim_template.RESOURCE)
        self._waiting = self._pods.by(_namespace_with_claims)
        self._recorder = Recorder(client, clock, COMPONENT)
        self._loop: ControllerLoop[ClaimTask] = ControllerLoop(
            "resourceclaim", self._reconcile, clock, workers=WORKERS
        )
        self._pods.follow(self._pod_changed)
        self._claims.follow(self._claim_changed)
        self._templates.follow(self._template_changed)

    async def run(self) -> None:
        await together(self._loop.run(), self._recorder.run())

    # Events: the pods and claims to look at.

    def _pod_changed(self, before: Pod | None, now: Pod | None) -> None:
        pod = now or before
        if pod is None:
            return
        if not pod.spec.resourceClaims and pod.status.extendedResourceClaimStatus is None:
            return
        if now is None or needs_no_claims(now) or (before and _uid(before) != _uid(now)):
            for old in (before, now):
                for name in _names(old):
                    self._add_claim(pod.metadata.namespace, name)
        if now is not None and not needs_no_claims(now):
            self._loop.add(ClaimTask(PODS.plural, key_of(now)))

    def _claim_changed(self, before: ResourceClaim | None, now: ResourceClaim | None) -> None:
        claim = now or before
        if claim is None:
            return
        if now is not None:
            self._loop.add(ClaimTask(RESOURCE.plural, key_of(now)))
        meta = claim.metadata
        for pod in self._waiting.get(meta.namespace):
            if meta.name in _names(pod):
                self._loop.add(ClaimTask(PODS.plural, key_of(pod)))

    def _template_changed(
        self, before: ResourceClaimTemplate | None, now: ResourceClaimTemplate | None
    ) -> None:
        if now is None:
            return
        for pod in self._waiting.get(now.metadata.namespace):
            if any(
                each.resourceClaimTemplateName == now.metadata.name
                for each in pod.spec.resourceClaims
            ):
                self._loop.add(ClaimTask(PODS.plural, key_of(pod)))

    def _add_claim(self, namespace: str, name: str) -> None:
        self._loop.add(ClaimTask(RESOURCE.plural, Key(namespace, name)))

    async def _reconcile(self, task: ClaimTask) -> None:
        if task.plural == PODS.plural:
            pod = self._pods.get(task.key.name, task.key.namespace)
            if pod is not None and not pod.metadata.deletionTimestamp:
                await self._reconcile_pod(pod)
        else:
            claim = self._claims.get(task.key.name, task.key.namespace)
            if claim is not None:
                await self._reconcile_claim(claim)

    # Pods: make their claims, and reserve claims for pods that bypassed the scheduler.

    async def _reconcile_pod(self, pod: Pod) -> None:
        if needs_no_claims(pod):
            return
        made: dict[str, str] = {}
        for podclaim in pod.spec.resourceClaims:
            try:
                if claim := await self._made(pod, podclaim):
                    made[podclaim.name] = claim.metadata.name
            except (ClaimCreationFailed, StatusError) as error:
                message = f"PodResourceClaim {podclaim.name}: {error}"
                self._recorder.record(pod, WARNING, "FailedResourceClaimCreation", message)
                raise
        if made:
            await self._write_names(pod, made)
        if pod.spec.nodeName:
            await self._reserve(pod)

    async def _made(self, pod: Pod, podclaim: PodResourceClaim) -> ResourceClaim | None:
        """Return the claim whose name the pod's status lacks; made if there is none."""
        namespace, template_name = pod.metadata.namespace, podclaim.resourceClaimTemplateName
        if template_name is None:
            return None
        try:
            name = claim_name(pod, podclaim)
            if name is None:
                return None
            claim = self._claims.get(name, namespace)
            if claim is not None:
                check_owner(pod, podclaim, claim)
                return None
        except ClaimMissing:
            pass
        for owned in self._claims.owned(pod.metadata.uid):
            if owned.metadata.annotations.get(POD_CLAIM_NAME) == podclaim.name:
                return owned
        template = self._templates.get(template_name, namespace)
        if template is None:
            group = "resourceclaimtemplate.resource.k8s.io"
            raise ClaimCreationFailed(
                f'resource claim template "{template_name}": {group} "{template_name}" not found'
            )
        try:
            claim = await self._client.create(RESOURCE, claim_for(pod, podclaim, template))
        except StatusError as error:
            raise ClaimCreationFailed(f"create ResourceClaim : {error}") from error
        await self._claims.written(claim)
        return claim

    async def _write_names(self, pod: Pod, made: dict[str, str]) -> None:
        meta = pod.metadata
        statuses = [{"name": name, "resourceClaimName": claim} for name, claim in made.items()]
        patch = {"metadata": {"uid": meta.uid}, "status": {"resourceClaimStatuses": statuses}}
        written = await self._client.patch(
            PODS, meta.name, patch, meta.namespace, form=STRATEGIC_PATCH, subresource="status"
        )
        await self._pods.written(written)

    async def _reserve(self, pod: Pod) -> None:
        """Reserve allocated claims for a pod that has a node; the scheduler did it for its pods."""
        for podclaim in pod.spec.resourceClaims:
            try:
                name = claim_name(pod, podclaim)
            except ClaimMissing:
                continue
            claim = self._claims.get(name, pod.metadata.namespace) if name is not None else None
            if claim is None or claim.status.allocation is None or is_reserved(claim, pod):
                continue
            reserved = [*claim.status.reservedFor, consumer(pod)]
            await self._update_status(
                replace(claim, status=replace(claim.status, reservedFor=reserved))
            )

    # Claims: remove consumers that are gone, then the allocation, the finalizer and the claim.

    async def _reconcile_claim(self, claim: ResourceClaim) -> None:
        status = claim.status
        namespace = claim.metadata.namespace
        left = [each for each in status.reservedFor if await self._uses(each, namespace)]
        is_ours = FINALIZER in claim.metadata.finalizers
        if len(left) < len(status.reservedFor):
            allocation = status.allocation if left or not is_ours else None
            status = replace(status, reservedFor=left or (), allocation=allocation)
            claim = await self._update_status(replace(claim, status=status))
            if is_ours and allocation is None:
                claim = await self._release(claim)
        elif is_ours and claim.metadata.deletionTimestamp and not left:
            if status.allocation is not None:
                status = replace(status, allocation=None)
                claim = await self._update_status(replace(claim, status=status))
            claim = await self._release(claim)
        if not left and not claim.metadata.deletionTimestamp:
            await self._delete_unused(claim)

    async def _uses(self, reference: ResourceClaimConsumerReference, namespace: str) -> bool:
        """Whether a consumer may still use the claim; those of unknown kinds always may."""
        if reference.apiGroup or reference.resource != "pods":
            return True
        pod = self._pods.get(reference.name, namespace)
        if pod is None or _uid(pod) != reference.uid:
            # The claim may be newer than the known pods.
            try:
                pod = await self._client.get(PODS, reference.name, namespace)
            except StatusError as error:
                if error.code != 404:
                    raise
                return False
        return _uid(pod) == reference.uid and not needs_no_claims(pod)

    async def _update_status(self, claim: ResourceClaim) -> ResourceClaim:
        written = await self._client.update(RESOURCE, claim, subresource="status")
        await self._claims.written(written)
        return written

    async def _release(self, claim: ResourceClaim) -> ResourceClaim:
        finalizers = [each for each in claim.metadata.finalizers if each != FINALIZER]
        metadata = replace(claim.metadata, finalizers=finalizers or ())
        return await self._client.update(RESOURCE, replace(claim, metadata=metadata))

    async def _delete_unused(self, claim: ResourceClaim) -> None:
        """Delete a claim that was made for a pod that has ended or was replaced."""
        owner = controller_of(claim)
        if owner is None or (owner.apiVersion, owner.kind) != ("v1", "Pod"):
            return
        pod = self._pods.get(owner.name, claim.metadata.namespace)
        # The garbage collector deletes the claims of pods that are gone.
        if pod is not None and (_uid(pod) != owner.uid or needs_no_claims(pod)):
            try:
                await self._client.delete(RESOURCE, claim.metadata.name, claim.metadata.namespace)
            except StatusError as error:
                if error.code != 404:
                    raise


def claim_for(
    pod: Pod, podclaim: PodResourceClaim, template: ResourceClaimTemplate
) -> ResourceClaim:
    """Return the claim that a template makes for a pod."""
    meta, made = pod.metadata, template.spec.metadata
    owner = OwnerReference(
        apiVersion="v1", kind="Pod", name=meta.name, uid=meta.uid, controller=True
    )
    return ResourceClaim(
        metadata=ObjectMeta(
            namespace=meta.namespace,
            generateName=name_prefix(meta.name, podclaim.name),
            labels=made.labels,
            annotations={**made.annotations, POD_CLAIM_NAME: podclaim.name},
            ownerReferences=[owner],
        ),
        spec=template.spec.spec,
    )


def name_prefix(pod: str, podclaim: str) -> str:
    """Return the prefix of a claim's name; of long names both parts lose in proportion."""
    prefix = f"{pod}-{podclaim}-"
    if len(prefix) <= MOST_PREFIX:
        return prefix
    pod = pod[: len(pod) * MOST_PREFIX // len(prefix)]
    return f"{pod}-{podclaim[: len(podclaim) * MOST_PREFIX // len(prefix)]}"


def _namespace_with_claims(pod: Pod) -> str | None:
    return pod.metadata.namespace if pod.spec.resourceClaims else None


def _names(pod: Pod | None) -> Sequence[str]:
    return [] if pod is None else list(known_names(pod))


def _uid(pod: Pod) -> str:
    return pod.metadata.uid
