"""PodTemplates: a new pod that equals an admitted one in all that matters is stored as that one.

A ReplicaSet, a Job or a DaemonSet creates pods that differ in their names only. Pods of other
programs often differ in texts that are for the container: labels, variables, arguments
(`free_texts.py`). Decoding, defaults, admission and validation of such a pod give the results of
the pod before, unless something that admission looks at has changed (`TemplateBasis`). So the
server keeps the result of a pod. A further one gets it with texts, a name, a uid and timestamps of
its own, and saves a quarter or more of the time.

These are done for each pod all the same: authentication, authorization, priority and fairness,
which come before; the syntax of the body and of the name; the quota; the check that the name is
free.

The key is the whole body without `metadata.name` and free texts, with the user, the namespace and
the options. Left out are bodies of other forms than JSON, long bodies, and pods whose defaults or
validation depend on their name or on the time. Clients choose how many results there are: a result
is kept from the second pod of a template on, and the oldest results are dropped.

Upstream does all work for each pod. Its pods differ from these in one more place: each has a random
name of the volume of its token, while pods of one template have the same one here.
"""

from collections.abc import Hashable, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.api.core_v1.pod.validation import MIRROR_POD
from kedge.api.model import ManagedFieldsEntry, Object, ObjectMeta
from kedge.api.resource import enc_hook
from kedge.apiserver.admission.template_basis import TemplateBasis
from kedge.apiserver.free_texts import FreeTexts, with_texts, without_texts
from kedge.apiserver.prepare import random_uid
from kedge.apiserver.request import Request
from kedge.machinery import names
from kedge.machinery.durations import format_time

MOST_TEMPLATES: Final = 128
LONGEST_BODY: Final = 8 << 10
MOST_SEEN: Final = 1024
"""Templates with one pod so far. The server keeps a number for each."""

_HEAD: Final = b'{"kind":"Pod","apiVersion":"v1","metadata":'


class NamelessPod(msgspec.Struct, frozen=True):
    """A posted pod without its name: pods of one template have equal keys."""

    key: tuple[Hashable, ...]
    basis: tuple[Hashable, ...]
    """The value of `TemplateBasis` when the pod arrives."""
    texts: FreeTexts


class AdmittedPod(msgspec.Struct, frozen=True):
    """The result of admission for one pod of a template."""

    basis: tuple[Hashable, ...]
    pod: Pod
    """As it was admitted, or with the texts of the latest one."""
    texts: FreeTexts
    """Those of this pod."""
    owners: Sequence[ManagedFieldsEntry]
    rest: bytes
    """The JSON that is stored after the metadata."""
    warnings: Sequence[str]
    annotations: Mapping[str, str]
    """Those of the audit event."""


class WithoutTexts(NamedTuple):
    """A posted pod without its name, taken apart."""

    content: bytes
    """The JSON with marks in place of the texts."""
    texts: FreeTexts


class NewPod(msgspec.Struct, frozen=True):
    """A pod that equals an admitted one."""

    pod: Object
    value: bytes
    """The JSON to store."""
    warnings: Sequence[str]
    annotations: Mapping[str, str]


class PodTemplates:
    """The results of the latest templates that had several pods."""

    def __init__(self, basis: TemplateBasis) -> None:
        self._basis = basis
        self._seen: dict[int, None] = {}
        self._admitted: dict[tuple[Hashable, ...], AdmittedPod] = {}
        self._apart: dict[bytes, WithoutTexts] = {}
        """The latest bodies, because most pods have the texts of the pod before."""

    def nameless(self, request: Request, document: Mapping[str, Any]) -> NamelessPod | None:
        """Return a posted pod without its name; None for a pod that is left out."""
        meta = document.get("metadata")
        if type(meta) is not dict or "dryRun" in request.http.query_string:
            return None
        if "resourceVersion" in meta or "managedFields" in meta:
            return None
        if type(meta.get("name", "")) is not str:
            return None
        basis = self._basis.of(request)
        if basis is None:
            return None
        common = {name: value for name, value in meta.items() if name != "name"}
        try:
            content, texts = self._without_texts({**document, "metadata": common})
        except msgspec.EncodeError:
            return None
        agent = request.http.headers.get("user-agent", "")
        options = request.http.query_string
        key = request.user, request.namespace, options, agent, content
        return NamelessPod(key, basis, texts)

    def _without_texts(self, document: Mapping[str, Any]) -> WithoutTexts:
        content = msgspec.json.encode(document)
        found = self._apart.get(content)
        if found is None:
            masked, texts = without_texts(document)
            found = self._apart[content] = WithoutTexts(msgspec.json.encode(masked), texts)
            if len(self._apart) > MOST_TEMPLATES:
                del self._apart[next(iter(self._apart))]
        return found

    def find(
        self, template: NamelessPod, name: str, now: datetime, random: Random
    ) -> NewPod | None:
        """Return the pod to store, with a generated name if it has none; None if it has to be
        decoded and admitted."""
        known = self._admitted.get(template.key)
        if known is None:
            return None
        if known.basis != template.basis:
            del self._admitted[template.key]
            return None
        if template.texts is not known.texts:
            known = self._admitted[template.key] = _with_texts(known, template.texts)
        like = known.pod.metadata
        if not name:
            name = names.generate_name(like.generateName, random)
        # A wrong name, or one that is no hostname and needs a warning, takes the usual way.
        if names.dns_label(name):
            return None
        time = format_time(now)
        meta = replace(
            like,
            name=name,
            uid=random_uid(random),
            creationTimestamp=time,
            managedFields=[replace(owner, time=time) for owner in known.owners] or (),
        )
        value = b"%b%b%b" % (_HEAD, _encoder.encode(meta), known.rest)
        return NewPod(replace(known.pod, metadata=meta), value, known.warnings, known.annotations)

    def keep(
        self,
        template: NamelessPod,
        request: Request,
        admitted: Object,
        owners: Sequence[ManagedFieldsEntry],
        value: bytes,
    ) -> None:
        """Keep the result of a pod if it is the second one of its template. `value` is the JSON to
        store."""
        number = hash(template.key)
        if number not in self._seen:
            self._seen[number] = None
            if len(self._seen) > MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            return
        # Something may have changed while plugins were asked: some before it, some after it.
        if self._basis.of(request) != template.basis:
            return
        if not isinstance(admitted, Pod) or not _is_like_others(admitted):
            return
        owned = _with_owners(admitted.metadata, owners)
        before = _HEAD + _encoder.encode(owned)
        if value != before + _rest(with_texts(admitted, template.texts)):
            return
        del self._seen[number]
        self._admitted[template.key] = AdmittedPod(
            template.basis,
            admitted,
            template.texts,
            owned.managedFields,
            value[len(before) :],
            tuple(request.warnings),
            dict(request.annotations),
        )
        if len(self._admitted) > MOST_TEMPLATES:
            del self._admitted[next(iter(self._admitted))]


_encoder: Final = msgspec.json.Encoder(enc_hook=enc_hook)


def _with_texts(known: AdmittedPod, texts: FreeTexts) -> AdmittedPod:
    pod = with_texts(known.pod, texts)
    rest = known.rest if pod.spec is known.pod.spec else _rest(pod)
    return replace(known, pod=pod, texts=texts, rest=rest)


def _rest(pod: Pod) -> bytes:
    """Return the JSON of a pod after the metadata."""
    bare = replace(pod, apiVersion="", kind="", metadata=_NO_METADATA)
    return b"," + _encoder.encode(bare)[1:]


_NO_METADATA: Final = Pod().metadata
"""The default, which is left off where it is the same object."""


def may_have_template(request: Request) -> bool:
    """Whether the body of a request may equal those of other pods."""
    return (
        request.resource is pod.RESOURCE
        and not request.subresource
        and len(request.http.body) <= LONGEST_BODY
        and request.http.headers.get("content-type", "") == "application/json"
    )


def _with_owners(meta: ObjectMeta, owners: Sequence[ManagedFieldsEntry]) -> ObjectMeta:
    """Return the metadata with the owners of fields as they are stored; their order is made once,
    with the JSON that is kept."""
    raw = [
        owner
        if isinstance(owner.fieldsV1, msgspec.Raw)
        else replace(owner, fieldsV1=msgspec.Raw(msgspec.json.encode(owner.fieldsV1)))
        for owner in owners
    ]
    return replace(meta, managedFields=raw or ())


def _is_like_others(admitted: Pod) -> bool:
    """Whether neither the name of the pod nor the time has an effect on anything but metadata, and
    nothing was looked up on nodes."""
    spec = admitted.spec
    return not (
        spec.nodeName
        or spec.schedulingGates
        or spec.resourceClaims
        or spec.hostUsers is False
        or MIRROR_POD in admitted.metadata.annotations
        or any(volume.ephemeral is not None for volume in spec.volumes)
    )
