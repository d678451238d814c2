"""Attributes: an action as authorization rules describe it, and the decision about it."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from kedge.api.metrics_v1alpha1 import aggregate
from kedge.apiserver.media import wants_addresses_only
from kedge.apiserver.request import User
from kedge.apiserver.route import ResourcePath
from kedge.machinery import names
from kedge.machinery.errors import StatusError, forbidden
from kedge.machinery.selectors import (
    EVERYTHING,
    FieldSelector,
    FieldTerm,
    LabelRequirements,
    parse_fields,
    parse_labels,
)
from kedge.web.message import HttpRequest

NAMELESS = ("list", "watch")
"""Verbs on many objects, which a selector can narrow down to one name."""
SELECTING = (*NAMELESS, "deletecollection")

ANYTHING = FieldSelector()


class Attributes(msgspec.Struct, frozen=True, gc=False):
    """One thing that a user wants to do: to a resource, or (without a plural) to a path."""

    user: User
    verb: str
    group: str = ""
    version: str = ""
    plural: str = ""
    subresource: str = ""
    namespace: str = ""
    """Empty for all namespaces, and for what lives in none; a namespace lives in itself."""
    name: str = ""
    path: str = ""
    fields: FieldSelector = ANYTHING
    """The field selector of a list, watch or deletecollection."""
    addresses_only: bool = False
    """Whether a list or watch of pods shows nothing but what network policies refer to."""
    labels: LabelRequirements = EVERYTHING
    """The label selector of a list or watch of persistent volumes."""

    @property
    def resource(self) -> str:
        """The resource as rules name it, for instance `pods/log`."""
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Whether it may be done, and why or why not as far as that can be said."""

    allowed: bool
    reason: str = ""
    final: bool = False
    """Whether no other authorizer may allow it."""


def of_resource(user: User, verb: str, target: ResourcePath, http: HttpRequest) -> Attributes:
    """A request below /api/v1 or /apis/GROUP/VERSION, whether or not there is such a resource."""
    namespace, name, fields = target.namespace, target.name, ANYTHING
    if target.plural == "namespaces" and not target.group and not namespace:
        namespace = name
    if verb in SELECTING and not target.watch and "fieldSelector" in http.query_string:
        fields = _selected(http.query.get("fieldSelector"))
        if not name and verb in NAMELESS:
            name = _only_name(fields)
    return _of_parts(
        Attributes(
            user,
            verb,
            target.group,
            target.version,
            target.plural,
            target.subresource,
            namespace,
            name,
            "",
            fields,
            _is_of_addresses(verb, target, http),
            _labels(verb, target, http),
        )
    )


def _of_parts(asked: Attributes) -> Attributes:
    """A read of aggregated usage is a read of the usage of all pods of its namespace: a rule about
    the aggregate itself neither grants nor is needed."""
    if asked.group != aggregate.GROUP or asked.plural not in aggregate.PLURALS:
        return asked
    if asked.subresource or asked.verb not in ("get", *NAMELESS):
        return asked
    verb = "watch" if asked.verb == "watch" else "list"
    return Attributes(
        asked.user, verb, asked.group, asked.version, "pods", namespace=asked.namespace
    )


def _is_of_addresses(verb: str, target: ResourcePath, http: HttpRequest) -> bool:
    is_pods = target.plural == "pods" and not target.group and not target.subresource
    if verb not in NAMELESS or not is_pods:
        return False
    return wants_addresses_only(http.headers.get("accept", ""))


def _labels(verb: str, target: ResourcePath, http: HttpRequest) -> LabelRequirements:
    """Return the label selector where a rule looks at it: nodes list volumes of their own."""
    is_volumes = target.plural == "persistentvolumes" and not target.group and not target.watch
    if verb not in NAMELESS or not is_volumes:
        return EVERYTHING
    try:
        return parse_labels(http.query.get("labelSelector"))
    except ValueError:
        return EVERYTHING


def of_path(user: User, method: str, path: str) -> Attributes:
    """A request for anything else; `path` is as it came, still percent-encoded."""
    return Attributes(user, method.lower(), path=unquote(path))


def of_review(user: User, spec: Mapping[str, Any]) -> Attributes:
    """Return the action that the spec of an access review describes."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return Attributes(user, path.get("verb", ""), path=path.get("path", ""))
    asked = spec.get("resourceAttributes") or {}
    return _of_parts(
        Attributes(
            user=user,
            verb=asked.get("verb", ""),
            group=asked.get("group", ""),
            version=asked.get("version", ""),
            plural=asked.get("resource", ""),
            subresource=asked.get("subresource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
            fields=_reviewed(asked.get("fieldSelector") or {}),
        )
    )


def denied(attributes: Attributes, reason: str = "") -> StatusError:
    """403 in Kubernetes' words."""
    why = _escaped(_sentence(attributes))
    if reason:
        why = f"{why}: {reason}"
    if not attributes.plural:
        return StatusError(403, "Forbidden", f"forbidden: {why}", details={})
    return forbidden(attributes.group, attributes.plural, attributes.name, why)


def _sentence(attributes: Attributes) -> str:
    subject = f"User {_q(attributes.user.name)} cannot {attributes.verb}"
    if not attributes.plural:
        return f"{subject} path {_q(attributes.path)}"
    where = f"in the namespace {_q(attributes.namespace)}"
    if not attributes.namespace:
        where = "at the cluster scope"
    what = f"resource {_q(attributes.resource)} in API group {_q(attributes.group)}"
    return f"{subject} {what} {where}"


def _escaped(text: str) -> str:
    """Nothing in an error may be taken for HTML: names and paths come from anybody."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _q(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _selected(text: str) -> FieldSelector:
    try:
        return parse_fields(text)
    except ValueError:
        # The verb itself says what is wrong with the selector; here it gives no right.
        return ANYTHING


def _only_name(fields: FieldSelector) -> str:
    name = fields.exact("metadata.name") or ""
    return name if name and not names.path_segment(name) else ""


def _reviewed(selector: Mapping[str, Any]) -> FieldSelector:
    if selector.get("rawSelector"):
        return _selected(selector["rawSelector"])
    terms = [
        FieldTerm(each.get("key", ""), "=", each["values"][0])
        for each in selector.get("requirements") or ()
        if each.get("operator") == "In" and len(each.get("values") or ()) == 1
    ]
    return FieldSelector(terms) if terms else ANYTHING
