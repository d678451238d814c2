"""The environments, by use: CRD rules, policies, match conditions, identities, devices."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from kedge.machinery.cel.environment import Environment
from kedge.machinery.cel.libraries.authorizer import AUTHORIZER, RESOURCE_CHECK
from kedge.machinery.cel.libraries.formats import JSON_PATCH
from kedge.machinery.cel.macros import WITH_BINDINGS
from kedge.machinery.cel.types import (
    BOOL,
    DYN,
    INT,
    QUANTITY,
    STRING,
    TIMESTAMP,
    CelType,
    list_of,
    map_of,
    object_of,
    optional_of,
)

_STRINGS: Final = list_of(STRING)
_GROUP_VERSION_KIND: Final = object_of(
    "kubernetes.GroupVersionKind", {"group": STRING, "version": STRING, "kind": STRING}
)
_GROUP_VERSION_RESOURCE: Final = object_of(
    "kubernetes.GroupVersionResource", {"group": STRING, "version": STRING, "resource": STRING}
)
_USER_INFO: Final = object_of(
    "kubernetes.UserInfo",
    {
        "username": STRING,
        "uid": STRING,
        "groups": _STRINGS,
        "extra": map_of(STRING, _STRINGS),
    },
)
REQUEST: Final = object_of(
    "kubernetes.AdmissionRequest",
    {
        "kind": _GROUP_VERSION_KIND,
        "resource": _GROUP_VERSION_RESOURCE,
        "subResource": STRING,
        "requestKind": _GROUP_VERSION_KIND,
        "requestResource": _GROUP_VERSION_RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER_INFO,
        "dryRun": BOOL,
        "options": DYN,
    },
)
"""The type of `request` in policies and match conditions."""

NAMESPACE: Final = object_of(
    "kubernetes.Namespace",
    {
        "metadata": object_of(
            "kubernetes.NamespaceMetadata",
            {
                "name": STRING,
                "generateName": STRING,
                "namespace": STRING,
                "labels": map_of(STRING, STRING),
                "annotations": map_of(STRING, STRING),
                "UID": STRING,
                "creationTimestamp": TIMESTAMP,
                "deletionGracePeriodSeconds": INT,
                "deletionTimestamp": TIMESTAMP,
                "generation": INT,
                "resourceVersion": STRING,
                "finalizers": _STRINGS,
            },
        ),
        "spec": object_of("kubernetes.NamespaceSpec", {"finalizers": _STRINGS}),
        "status": object_of(
            "kubernetes.NamespaceStatus",
            {
                "phase": STRING,
                "conditions": list_of(
                    object_of(
                        "kubernetes.NamespaceCondition",
                        {
                            "status": STRING,
                            "type": STRING,
                            "lastTransitionTime": TIMESTAMP,
                            "message": STRING,
                            "reason": STRING,
                        },
                    )
                ),
            },
        ),
    },
)
"""The type of `namespaceObject`."""

OBJECT: Final = object_of("Object", None)
JSON_PATCH_OPERATION: Final = object_of(
    "JSONPatch", {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
)


@lru_cache(maxsize=4)
def match_conditions(params: bool = False) -> Environment:
    """Return the environment of match conditions, of webhooks and of policies."""
    return Environment(_admission(params=params, authorizer=True))


def _admission(*, params: bool, authorizer: bool) -> dict[str, CelType]:
    variables = {"object": DYN, "oldObject": DYN, "request": REQUEST, "namespaceObject": NAMESPACE}
    if params:
        variables["params"] = DYN
    if authorizer:
        variables |= {"authorizer": AUTHORIZER, "authorizer.requestResource": RESOURCE_CHECK}
    return variables


def policy(
    variables: Mapping[str, CelType],
    *,
    params: bool,
    authorizer: bool = True,
    mutation: bool = False,
    types: Mapping[str, CelType] | None = None,
) -> Environment:
    """Return the environment of a policy's expressions.

    `variables` are those of the policy that an expression may use, with their types. `types`
    replaces the types of `object`, `oldObject` and `params`, for type checking.
    """
    names = _admission(params=params, authorizer=authorizer)
    names.update((name, type) for name, type in (types or {}).items() if name in names)
    names["variables"] = object_of("kubernetes.variables", dict(variables))
    if not mutation:
        return Environment(names)
    return Environment(names, more_functions=JSON_PATCH, object_type=_mutation_type)


def _mutation_type(name: str) -> CelType | None:
    if name == "JSONPatch":
        return JSON_PATCH_OPERATION
    if name == "Object":
        return OBJECT
    return object_of(name, None) if name.startswith("Object.") else None


def crd_rule(self_type: CelType, *, optional_old: bool = False) -> Environment:
    """Return the environment of a rule in `x-kubernetes-validations`."""
    old = optional_of(self_type) if optional_old else self_type
    return Environment({"self": self_type, "oldSelf": old})


DEVICE: Final = object_of(
    "kubernetes.DRADevice",
    {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, DYN)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
        "allowMultipleAllocations": BOOL,
    },
)
MAX_DEVICE_SELECTOR: Final = 10_240
"""Characters of a device selector."""


@lru_cache(maxsize=1)
def device_selector() -> Environment:
    """Return the environment of a DeviceClass's or ResourceClaim's selectors: `device`.

    `device` is {"driver": str, "attributes": DomainMap, "capacity": DomainMap,
    "allowMultipleAllocations": bool}. Capacities are quantities (`quantity_of`), attributes plain
    values or versions (`version_of`). `cel.bind` exists only here.
    """
    return Environment({"device": DEVICE}, macros=WITH_BINDINGS)


_CLAIMS: Final = map_of(STRING, DYN)


@lru_cache(maxsize=1)
def token_claims() -> Environment:
    """Return the environment of claim mappings and claim validation rules: `claims`."""
    return Environment({"claims": _CLAIMS})


@lru_cache(maxsize=1)
def token_user() -> Environment:
    """Return the environment of user validation rules: `user`."""
    return Environment({"user": _USER_INFO})


_SELECTOR: Final = object_of(
    "kubernetes.SelectorAttributes",
    {
        "rawSelector": STRING,
        "requirements": list_of(
            object_of(
                "kubernetes.SelectorRequirement",
                {"key": STRING, "operator": STRING, "values": _STRINGS},
            )
        ),
    },
)
_ACCESS_REVIEW: Final = object_of(
    "kubernetes.SubjectAccessReviewSpec",
    {
        "resourceAttributes": object_of(
            "kubernetes.ResourceAttributes",
            {
                **dict.fromkeys(
                    (
                        "namespace", "verb", "group", "version", "resource", "subresource", "name",
                    ),
                    STRING,
                ),
                "fieldSelector": _SELECTOR,
                "labelSelector": _SELECTOR,
            },
        ),
        "nonResourceAttributes": object_of(
            "kubernetes.NonResourceAttributes", {"path": STRING, "verb": STRING}
        ),
        "user": STRING,
        "groups": _STRINGS,
        "extra": map_of(STRING, _STRINGS),
        "uid": STRING,
    },
)  # fmt: skip


@lru_cache(maxsize=1)
def access_review() -> Environment:
    """Return the environment of an authorization webhook's match conditions: `request`."""
    return Environment({"request": _ACCESS_REVIEW})
