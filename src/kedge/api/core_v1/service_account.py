"""ServiceAccount: who a pod is when it talks to the API."""

from collections.abc import Sequence
from typing import Annotated

from msgspec.structs import replace

from kedge.api.core_v1.references import LocalObjectReference, ObjectReference
from kedge.api.model import Object, keyed
from kedge.api.presentation import Presentation, age_column, name_column
from kedge.api.resource import Resource, Subresource
from kedge.api.strategy import Strategy


class ServiceAccount(Object):
    """An identity for the processes of pods."""

    automountServiceAccountToken: bool | None = None
    """Whether pods get a token of this account mounted, unless they say otherwise."""
    imagePullSecrets: Sequence[LocalObjectReference] = ()
    """Secrets for pulling images that pods of this account use if they name none."""
    secrets: Annotated[Sequence[ObjectReference], keyed("name")] = ()
    """Secrets that pods of this account may mount, where such a limit is enforced."""


def _with_secret_names(account: ServiceAccount) -> ServiceAccount:
    """Return the account with nothing but the names of its secrets, as upstream stores it."""
    named = [ObjectReference(name=secret.name) for secret in account.secrets]
    return replace(account, secrets=named) if named != list(account.secrets) else account


RESOURCE: Resource[ServiceAccount] = Resource(
    type=ServiceAccount,
    plural="serviceaccounts",
    subresources=[
        Subresource(
            "token",
            verbs=("create",),
            kind="TokenRequest",
            group="authentication.k8s.io",
            version="v1",
        )
    ],
    strategy=Strategy(
        counts_generation=False,
        returns_deleted_object=True,
        prepare_for_create=_with_secret_names,
        prepare_for_update=lambda new, old: _with_secret_names(new),
    ),
    presentation=Presentation(short_names=["sa"], columns=[name_column(), age_column()]),
)
