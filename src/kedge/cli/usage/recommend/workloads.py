"""Which workloads and pods a command is about, and what their pods used."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kedge.api.apps_v1 import controller_revision, replica_set
from kedge.api.apps_v1.controller_revision import ControllerRevision
from kedge.api.batch_v1 import job
from kedge.api.batch_v1.job_validation import UID_LABEL
from kedge.api.core_v1.pod import pod as core_pod
from kedge.api.metrics_v1alpha1 import pod
from kedge.api.metrics_v1alpha1.pod import Pod
from kedge.api.model import Object
from kedge.api.resource import Resource
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.objects.targets import ObjectTarget, kind_of
from kedge.cli.usage.recommend.proposal import WorkloadUsage
from kedge.machinery.errors import StatusError
from kedge.machinery.selectors import LabelRequirements, labels_from_map, labels_from_object

KINDS: Final = (
    "deployments.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "replicasets.apps",
    "replicationcontrollers",
    "cronjobs.batch",
    "jobs.batch",
    "pods",
)
"""The kinds that are looked at if none is named."""
_DEPLOYMENT_REVISION: Final = "deployment.kubernetes.io/revision"
_TEMPLATE_LABEL: Final = "pod-template-hash"
_REVISION_LABEL: Final = "controller-revision-hash"
_RUNS: Final = 10
"""The newest pods of Jobs whose usage counts."""
_NO_USAGE: Final = (
    "nothing has been measured: its pods are deleted, or have not run for ten seconds"
)
Owned = TypeVar("Owned", bound=Object)


async def find(
    connection: ApiSession, words: Sequence[str], *, everywhere: bool = False, labels: str = ""
) -> list[WorkloadUsage]:
    """Return the workloads that the words name, or all; objects that a workload has made count
    with it, unless they are named themselves."""
    targets = await connection.targets(words or [",".join(KINDS)])
    scope = "" if everywhere else connection.namespace
    if any(target.name for target in targets) and (everywhere or labels):
        raise Failure("a name leaves nothing to select: leave out the name, or -A and -l")
    source = WorkloadUsageSource(
        connection, scope, is_alone=len(targets) == 1 and bool(targets[0].name)
    )
    found = []
    for target in targets:
        if target.name:
            document = await connection.get(target.resource, target.name, scope)
            found.append(await source.usage(target, document))
            continue
        listed = await connection.list(target.resource, scope, {"labelSelector": labels})
        for document in filter(_is_free, listed):
            named = ObjectTarget(target.resource, document["metadata"]["name"])
            found.append(await source.usage(named, document))
    return sorted(found, key=lambda each: each.namespace) if everywhere else found


def _is_free(document: Mapping[str, Any]) -> bool:
    """Whether no other object controls this one, whose template would undo any change."""
    owners = document["metadata"].get("ownerReferences") or ()
    return not any(each.get("controller") for each in owners)


class WorkloadUsageSource:
    """Finds the usage of the pods of workloads. Each list is fetched once."""

    def __init__(self, connection: ApiSession, scope: str, *, is_alone: bool) -> None:
        self._connection = connection
        self._scope = scope
        """The namespace; empty for all."""
        self._is_alone = is_alone
        """Whether there is only one workload, so that lists need only its objects."""
        self._lists: dict[tuple[str, str, str], Sequence[Any]] = {}

    async def usage(self, target: ObjectTarget, document: Mapping[str, Any]) -> WorkloadUsage:
        namespace = document["metadata"].get("namespace", "")
        match target.resource.kind:
            case "Pod":
                pods, reason = await self._by_name(namespace, [target.name]), ""
            case "Job":
                pods = await self._of_jobs(namespace, [document["metadata"]["uid"]])
                reason = "" if pods else _NO_USAGE
            case "CronJob":
                pods = await self._of_cron_job(namespace, document["metadata"]["uid"])
                reason = "" if pods else _NO_USAGE
            case _:
                pods = await self._of_template(target, document, namespace)
                reason = "" if _replicas(document) else "it has no pods"
        return WorkloadUsage(target, namespace, document, pods, reason)

    async def _of_template(
        self, target: ObjectTarget, document: Mapping[str, Any], namespace: str
    ) -> list[Pod]:
        selector = (document.get("spec") or {}).get("selector")
        if not selector or "template" not in document["spec"]:
            raise Failure(
                f"{kind_of(target.resource)} has no pods of its own: name a workload or pod"
            )
        plain = target.resource.kind == "ReplicationController"
        chosen = labels_from_map(selector) if plain else labels_from_object(selector)
        label, value = await self._revision(target, document, chosen)
        return [
            each
            for each in await self._list(pod.RESOURCE, str(chosen))
            if each.metadata.namespace == namespace
            # Before the selector, which takes longer: there may be many pods and workloads.
            and (not value or each.metadata.labels.get(label) == value)
            and chosen.matches(each.metadata.labels)
        ]

    async def _revision(
        self, target: ObjectTarget, document: Mapping[str, Any], chosen: LabelRequirements
    ) -> tuple[str, str]:
        """Return the label of the pods that have the current template; empty for a workload
        without revisions. Pods of an old template may have used more or less."""
        match target.resource.kind:
            case "Deployment":
                sets = await self._list(replica_set.RESOURCE, str(chosen))
                return _TEMPLATE_LABEL, current_replica_set(document["metadata"], sets)
            case "StatefulSet":
                revision = (document.get("status") or {}).get("updateRevision", "")
                return _REVISION_LABEL, revision
            case "DaemonSet":
                kept = await self._list(controller_revision.RESOURCE, str(chosen))
                return _REVISION_LABEL, current_revision(document["metadata"], kept)
            case _:
                return "", ""

    async def _of_cron_job(self, namespace: str, uid: str) -> list[Pod]:
        jobs = await self._list(job.RESOURCE)
        return await self._of_jobs(
            namespace, [each.metadata.uid for each in _owned({"uid": uid}, jobs)]
        )

    async def _of_jobs(self, namespace: str, uids: Sequence[str]) -> list[Pod]:
        """Return the usage of the newest pods of Jobs. Lists of usage have only pods that run."""
        mine = [
            each
            for each in await self._list(core_pod.RESOURCE, UID_LABEL)
            if each.metadata.namespace == namespace and each.metadata.labels.get(UID_LABEL) in uids
        ]
        mine.sort(key=lambda each: each.metadata.creationTimestamp, reverse=True)
        return await self._by_name(namespace, [each.metadata.name for each in mine[:_RUNS]])

    async def _by_name(self, namespace: str, names: Iterable[str]) -> list[Pod]:
        """Return the usage of pods; pods without usage on the server are left out."""
        found = []
        for name in names:
            try:
                found.append(await self._connection.client.get(pod.RESOURCE, name, namespace))
            except StatusError as error:
                if error.code != 404:
                    raise
        return found

    async def _list(self, resource: Resource[Owned], labels: str = "") -> Sequence[Owned]:
        chosen = labels if self._is_alone else ""
        key = (resource.group, resource.plural, chosen)
        if key not in self._lists:
            listed = await self._connection.client.list(resource, self._scope, labels=chosen)
            self._lists[key] = listed.items
        return self._lists[key]


def _replicas(document: Mapping[str, Any]) -> bool:
    """Whether a workload is to have pods, or may have some."""
    return bool((document.get("spec") or {}).get("replicas", 1) != 0)


def current_replica_set(owner: Mapping[str, Any], sets: Iterable[Object]) -> str:
    """Return the label of the pods of a Deployment's current ReplicaSet."""
    wanted = (owner.get("annotations") or {}).get(_DEPLOYMENT_REVISION)
    for each in _owned(owner, sets):
        if each.metadata.annotations.get(_DEPLOYMENT_REVISION) == wanted:
            return each.metadata.labels.get(_TEMPLATE_LABEL, "")
    return ""


def current_revision(owner: Mapping[str, Any], kept: Iterable[ControllerRevision]) -> str:
    """Return the label of the pods of a DaemonSet's newest revision."""
    newest = max(_owned(owner, kept), key=lambda each: each.revision, default=None)
    return "" if newest is None else newest.metadata.labels.get(_REVISION_LABEL, "")


def _owned(owner: Mapping[str, Any], objects: Iterable[Owned]) -> Iterator[Owned]:
    for each in objects:
        if any(of.uid == owner["uid"] for of in each.metadata.ownerReferences):
            yield each
