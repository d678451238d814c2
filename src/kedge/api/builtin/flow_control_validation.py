"""Validation of FlowSchemas and PriorityLevelConfigurations."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kedge.api import rules
from kedge.api.builtin.content import listed, numbered, text
from kedge.api.builtin.validation import Errors, Fields
from kedge.api.internal_forms import internal_form
from kedge.api.model import Document
from kedge.machinery import names
from kedge.machinery.errors import FieldError

EXEMPT: Final = "exempt"
CATCH_ALL: Final = "catch-all"

_MOST_PRECEDENCE: Final = 10_000
_MOST_QUEUES: Final = 10_000_000
_MOST_HASH_BITS: Final = 60
_METHODS: Final = ("ByNamespace", "ByUser")
_SUBJECTS: Final = {"ServiceAccount": "serviceAccount", "User": "user", "Group": "group"}
_LEVEL_TYPES: Final = ("Exempt", "Limited")
_RESPONSE_TYPES: Final = ("Queue", "Reject")
_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)
_ZERO_SHARES: Final = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

_EVERYTHING: Final = {
    "resourceRules": [
        {
            "verbs": ["*"],
            "apiGroups": ["*"],
            "resources": ["*"],
            "clusterScope": True,
            "namespaces": ["*"],
        }
    ],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}
MANDATORY_SCHEMAS: Final[Mapping[str, Fields]] = {
    EXEMPT: {
        "priorityLevelConfiguration": {"name": EXEMPT},
        "matchingPrecedence": 1,
        "rules": [
            {
                "subjects": [{"kind": "Group", "group": {"name": "system:masters"}}],
                **_EVERYTHING,
            }
        ],
    },
    CATCH_ALL: {
        "priorityLevelConfiguration": {"name": CATCH_ALL},
        "matchingPrecedence": 10000,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [
            {
                "subjects": [
                    {"kind": "Group", "group": {"name": name}}
                    for name in ("system:unauthenticated", "system:authenticated")
                ],
                **_EVERYTHING,
            }
        ],
    },
}
"""The specs of the FlowSchemas that cannot change."""
_REJECTED: Final = {
    "type": "Limited",
    "limited": {
        "nominalConcurrencyShares": 5,
        "lendablePercent": 0,
        "limitResponse": {"type": "Reject"},
    },
}


def flow_schema(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    name = obj.metadata.name
    yield from _precedence(spec.get("matchingPrecedence", 0), name)
    method = spec.get("distinguisherMethod")
    if method is not None and text(method, "type") not in _METHODS:
        shown = internal_form(method, "flowcontrol.FlowDistinguisherMethod")
        yield FieldError.not_supported("spec.distinguisherMethod.type", shown, _METHODS)
    path, level = "spec.priorityLevelConfiguration.name", _level(spec)
    if level:
        yield from rules.problems(path, level, names.dns_subdomain(level))
    else:
        yield FieldError.required(path, "must reference a priority level")
    for at, rule in numbered(obj.content, "spec.rules"):
        yield from _rule(rule, at)
    fixed = MANDATORY_SCHEMAS.get(name)
    if fixed is not None and _schema_form(spec) != _schema_form(fixed):
        why = f"spec of '{name}' must equal the fixed value"
        yield FieldError.invalid("spec", _schema_form(spec), why)


def _schema_form(spec: Fields) -> Any:
    return internal_form(spec, "flowcontrol.FlowSchemaSpec")


def _level(spec: Fields) -> str:
    return text(spec, "priorityLevelConfiguration.name")


def _precedence(precedence: int, name: str) -> Errors:
    path = "spec.matchingPrecedence"
    if precedence <= 0:
        yield FieldError.invalid(path, precedence, "must be a positive value")
    if precedence > _MOST_PRECEDENCE:
        why = f"must not be greater than {_MOST_PRECEDENCE}"
        yield FieldError.invalid(path, precedence, why)
    if precedence == 1 and name != EXEMPT:
        why = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield FieldError.invalid(path, precedence, why)


def _rule(rule: Fields, path: str) -> Errors:
    subjects = listed(rule, "subjects")
    for i, subject in enumerate(subjects):
        yield from _subject(subject, f"{path}.subjects[{i}]")
    if not subjects:
        yield FieldError.required(f"{path}.subjects", "subjects must contain at least one value")
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        why = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield FieldError.required(path, why)
    for i, each in enumerate(listed(rule, "resourceRules")):
        yield from _resource_rule(each, f"{path}.resourceRules[{i}]")
    for i, each in enumerate(listed(rule, "nonResourceRules")):
        yield from _url_rule(each, f"{path}.nonResourceRules[{i}]")


def _subject(subject: Fields, path: str) -> Errors:
    kind = text(subject, "kind")
    field = _SUBJECTS.get(kind)
    if field is None:
        yield FieldError.not_supported(f"{path}.kind", kind, sorted(_SUBJECTS))
        return
    given = subject.get(field)
    if given is None:
        why = f"{field} is required when subject kind is '{kind}'"
        yield FieldError.required(f"{path}.{field}", why)
    else:
        yield from _subject_name(given, kind, f"{path}.{field}")
    # Upstream lists the others in this order.
    for other_kind in ("ServiceAccount", "User", "Group"):
        other = _SUBJECTS[other_kind]
        if other != field and subject.get(other) is not None:
            why = f"{other} is forbidden when subject kind is not '{other_kind}'"
            yield FieldError.forbidden(f"{path}.{other}", why)


def _subject_name(subject: Fields, kind: str, path: str) -> Errors:
    name = text(subject, "name")
    if not name:
        yield FieldError.required(f"{path}.name")
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        yield from rules.problems(f"{path}.name", name, names.dns_subdomain(name))
    if namespace := text(subject, "namespace"):
        yield from rules.problems(f"{path}.namespace", namespace, names.dns_label(namespace))
    else:
        why = "must specify namespace for service account"
        yield FieldError.required(f"{path}.namespace", why)


def _verbs(verbs: Sequence[str], path: str) -> Errors:
    if not verbs:
        yield FieldError.required(path, "verbs must contain at least one value")
    elif "*" in verbs:
        yield from _alone(verbs, path, "verbs")
    elif not set(verbs) <= set(_VERBS):
        yield FieldError.not_supported(path, verbs, _VERBS)


def _alone(values: Sequence[str], path: str, words: str) -> Errors:
    if "*" in values and len(values) > 1:
        why = f"if '*' is present, must not specify other {words}"
        yield FieldError.invalid(path, values, why)


def _resource_rule(rule: Fields, path: str) -> Errors:
    yield from _verbs(listed(rule, "verbs"), f"{path}.verbs")
    for field, word, words in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        values = listed(rule, field)
        if not values:
            why = f"resource rules must supply at least one {word}"
            yield FieldError.required(f"{path}.{field}", why)
        yield from _alone(values, f"{path}.{field}", words)
    namespaces = listed(rule, "namespaces")
    at = f"{path}.namespaces"
    if not namespaces and not rule.get("clusterScope"):
        why = "resource rules that are not cluster scoped must supply at least one namespace"
        yield FieldError.required(at, why)
    elif "*" in namespaces:
        yield from _alone(namespaces, at, "namespaces")
    else:
        for i, namespace in enumerate(namespaces):
            for problem in names.dns_label(namespace):
                why = f"each member of this list must be '*' or a DNS-1123 label; {problem}"
                yield FieldError.invalid(f"{at}[{i}]", namespace, why)


def _url_rule(rule: Fields, path: str) -> Errors:
    yield from _verbs(listed(rule, "verbs"), f"{path}.verbs")
    urls, at = listed(rule, "nonResourceURLs"), f"{path}.nonResourceURLs"
    if not urls:
        yield FieldError.required(at, "nonResourceURLs must contain at least one value")
    elif "*" in urls:
        yield from _alone(urls, at, "non-resource URLs")
    else:
        for i, url in enumerate(urls):
            if problem := _url_problem(url):
                yield FieldError.invalid(f"{at}[{i}]", url, problem)


def _url_problem(url: str) -> str:
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    if url.count("*") > 1 or ("*" in url and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def conditions(new: Document, old: Document) -> Errors:
    """Yield the errors of a write to the status."""
    seen: set[str] = set()
    for path, condition in numbered(new.content, "status.conditions"):
        kind = text(condition, "type")
        if kind in seen:
            yield FieldError.duplicate(f"{path}.type", kind)
        seen.add(kind)
        if not kind:
            yield FieldError.required(f"{path}.type")


def priority_level(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    name, kind = obj.metadata.name, text(spec, "type")
    if _ZERO_SHARES in obj.metadata.annotations:
        why = f"annotation '{_ZERO_SHARES}' is forbidden"
        yield FieldError.forbidden("metadata.annotations", why)
    if (name == EXEMPT) != (kind == "Exempt"):
        why = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield FieldError.invalid("spec.type", kind, why)
    yield from _level_spec(spec, kind)
    yield from _mandatory_level(spec, name)


def _level_spec(spec: Fields, kind: str) -> Errors:
    limited, exempt = spec.get("limited"), spec.get("exempt")
    if kind == "Exempt":
        if limited is not None:
            yield FieldError.forbidden("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _shares(exempt, "spec.exempt")
            yield from _lendable(exempt, "spec.exempt")
    elif kind == "Limited":
        if exempt is not None:
            yield FieldError.forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            why = "must not be empty when type is Limited"
            yield FieldError.required("spec.limited", why)
        else:
            yield from _limited(limited, "spec.limited")
    else:
        yield from rules.one_of("spec.type", kind, _LEVEL_TYPES)


def _shares(fields: Fields, path: str) -> Errors:
    shares = fields.get("nominalConcurrencyShares") or 0
    if shares < 0:
        at = f"{path}.nominalConcurrencyShares"
        yield FieldError.invalid(at, shares, "must be a non-negative integer")


def _lendable(fields: Fields, path: str) -> Errors:
    percent = fields.get("lendablePercent") or 0
    if not 0 <= percent <= 100:
        why = "must be between 0 and 100, inclusive"
        yield FieldError.invalid(f"{path}.lendablePercent", percent, why)


def _limited(limited: Fields, path: str) -> Errors:
    yield from _shares(limited, path)
    yield from _response(limited.get("limitResponse") or {}, f"{path}.limitResponse")
    yield from _lendable(limited, path)
    borrowed = limited.get("borrowingLimitPercent") or 0
    if borrowed < 0:
        why = "if specified, must be a non-negative integer"
        yield FieldError.invalid(f"{path}.borrowingLimitPercent", borrowed, why)


def _response(response: Fields, path: str) -> Errors:
    kind, queuing = text(response, "type"), response.get("queuing")
    if kind == "Reject" and queuing is not None:
        why = "must be nil if limited.limitResponse.type is not Limited"
        yield FieldError.forbidden(f"{path}.queuing", why)
    elif kind == "Queue" and queuing is None:
        why = "must not be empty if limited.limitResponse.type is Limited"
        yield FieldError.required(f"{path}.queuing", why)
    elif kind == "Queue" and queuing is not None:
        yield from _queuing(queuing, f"{path}.queuing")
    else:
        yield from rules.one_of(f"{path}.type", kind, _RESPONSE_TYPES)


def _queuing(queuing: Fields, path: str) -> Errors:
    length, queues, hand = (
        queuing.get(field, 0) for field in ("queueLengthLimit", "queues", "handSize")
    )
    if length <= 0:
        yield FieldError.invalid(f"{path}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield FieldError.invalid(f"{path}.queues", queues, "must be positive")
    elif queues > _MOST_QUEUES:
        why = f"must not be greater than {_MOST_QUEUES}"
        yield FieldError.invalid(f"{path}.queues", queues, why)
    if hand <= 0:
        yield FieldError.invalid(f"{path}.handSize", hand, "must be positive")
    elif hand > queues:
        why = f"should not be greater than queues ({queues})"
        yield FieldError.invalid(f"{path}.handSize", hand, why)
    elif math.ceil(math.log2(queues) * hand) > _MOST_HASH_BITS:
        why = (
            f"required entropy bits of deckSize {queues} and handSize {hand}"
            f" should not be greater than {_MOST_HASH_BITS}"
        )
        yield FieldError.invalid(f"{path}.handSize", hand, why)


def _mandatory_level(spec: Fields, name: str) -> Errors:
    if name == EXEMPT and (text(spec, "type") != "Exempt" or spec.get("limited") is not None):
        why = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value"
        yield FieldError.invalid("spec", _level_form(spec), why)
    if name == CATCH_ALL and _level_form(spec) != _level_form(_REJECTED):
        why = "spec of 'catch-all' must equal the fixed value"
        yield FieldError.invalid("spec", _level_form(spec), why)


def _level_form(spec: Fields) -> Any:
    return internal_form(spec, "flowcontrol.PriorityLevelConfigurationSpec")
