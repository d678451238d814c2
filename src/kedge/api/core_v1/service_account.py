"""ServiceAccount: who a pod is when it talks to the API."""

from collections.abc import Sequence
from typing import Annotated

from kedge.api.core_v1.references import LocalObjectReference, ObjectReference
from kedge.api.model import Object, keyed
from kedge.api.resource import Resource, Subresource, age_column, name_column


class ServiceAccount(Object):
    """An identity for the processes of pods."""

    automountServiceAccountToken: bool | None = None
    """Whether pods get a token of this account mounted, unless they say otherwise."""
    imagePullSecrets: Sequence[LocalObjectReference] = ()
    """Secrets for pulling images that pods of this account use if they name none."""
    secrets: Annotated[Sequence[ObjectReference], keyed("name")] = ()
    """Secrets that pods of this account may mount, where such a limit is enforced."""


RESOURCE = Resource(
    type=ServiceAccount,
    plural="serviceaccounts",
    short_names=["sa"],
    subresources=[
        Subresource(
            "token",
            verbs=("create",),
            kind="TokenRequest",
            group="authentication.k8s.io",
            version="v1",
        )
    ],
    counts_generation=False,
    columns=[name_column(), age_column()],
)
