"""Validation of admission policies and their bindings."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from kedge.api import rules
from kedge.api.builtin import admission_rules
from kedge.api.builtin.content import listed, numbered, reach, text, typed
from kedge.api.builtin.validation import Errors, Fields, named, selector
from kedge.api.conditions import validate_conditions
from kedge.api.model import Condition, Document
from kedge.machinery import names
from kedge.machinery.errors import FieldError

_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_MATCH_POLICIES: Final = ("Equivalent", "Exact")
_REINVOCATION_POLICIES: Final = ("IfNeeded", "Never")
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_MUTABLE_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "UPDATE")
_PATCHES: Final = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MOST_CONDITIONS: Final = 64
_MOST_ANNOTATIONS: Final = 20
_LONGEST_ANNOTATION: Final = 5 * 1024
_BOTH: Final = "name and selector are mutually exclusive"
_EITHER: Final = "validations or auditAnnotations must contain at least one item"
_STATIC_SUFFIX: Final = ".static.k8s.io"
_is_identifier = re.compile("[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED: Final = frozenset(
    (
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    )
)


def static_name(obj: Document) -> Iterator[str]:
    """Warn about a name that is reserved."""
    if obj.metadata.name.endswith(_STATIC_SUFFIX):
        yield (
            f'metadata.name: names ending with "{_STATIC_SUFFIX}" are reserved for static'
            " manifest-based configurations and cannot be managed via the API"
        )


def validating_policy(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from _policy(spec)
    yield from _conditions_and_variables(spec)
    checks, annotations = listed(spec, "validations"), listed(spec, "auditAnnotations")
    if not checks and not annotations:
        yield FieldError.required("spec.validations", _EITHER)
        yield FieldError.required("spec.auditAnnotations", _EITHER)
    wrong = _by_index(spec, "validations")
    for i, (path, check) in enumerate(numbered(obj.content, "spec.validations")):
        yield from _check(check, path)
        yield from wrong.get(i, ())
    yield from _audit_annotations(annotations, obj.metadata.name, spec)


def _policy(spec: Fields) -> Errors:
    """Yield the errors of the part that both sorts of policies have."""
    yield from admission_rules.known(spec, "failurePolicy", _FAILURE_POLICIES, "spec")
    if "paramKind" in spec:
        yield from _param_kind(spec["paramKind"], "spec.paramKind")
    resources = spec.get("matchConstraints")
    if resources is None:
        yield FieldError.required("spec.matchConstraints")
    else:
        yield from _match_resources(resources, "spec.matchConstraints")
        if not resources.get("resourceRules"):
            yield FieldError.required("spec.matchConstraints.resourceRules")


def _conditions_and_variables(spec: Fields) -> Errors:
    conditions = listed(spec, "matchConditions")
    yield from _match_conditions(conditions, "spec.matchConditions")
    if len(conditions) <= _MOST_CONDITIONS:
        for errors in _by_index(spec, "matchConditions").values():
            yield from errors
    wrong = _by_index(spec, "variables")
    for i, (path, variable) in enumerate(numbered(spec, "variables")):
        yield from _variable(variable, f"spec.{path}")
        yield from wrong.get(i, ())


def _by_index(spec: Fields, field: str) -> dict[int, list[FieldError]]:
    """Return the errors of the expressions of a list, by the place of its elements."""
    from kedge.api.builtin.policy_programs import expression_errors

    found: dict[int, list[FieldError]] = {}
    for i, error in expression_errors(spec, field):
        found.setdefault(i, []).append(error)
    return found


def _param_kind(kind: Fields, path: str) -> Errors:
    version = text(kind, "apiVersion")
    if not version:
        yield FieldError.required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        why = f"unexpected GroupVersion string: {version}"
        yield FieldError.invalid(f"{path}.apiVersion", version, why)
    else:
        yield from _group_version(version, f"{path}.apiVersion")
    name = text(kind, "kind")
    if not name:
        yield FieldError.required(f"{path}.kind")
    elif found := names.dns1035_label(name.lower()):
        why = f"may have mixed case, but should otherwise match: {','.join(found)}"
        yield FieldError.invalid(f"{path}.kind", name, why)


def _group_version(value: str, path: str) -> Errors:
    group, slash, version = value.partition("/")
    if not slash:
        group, version = "", value
    if group and (found := names.dns_subdomain(group)):
        yield FieldError.invalid(path, group, ",".join(found))
    if not version:
        yield FieldError.invalid(path, value, "version must be specified")
    elif found := names.dns1035_label(version):
        yield FieldError.invalid(path, version, ",".join(found))


def _match_resources(resources: Fields, path: str) -> Errors:
    yield from admission_rules.known(resources, "matchPolicy", _MATCH_POLICIES, path)
    yield from selector(resources, path, "namespaceSelector")
    yield from selector(resources, path, "objectSelector")
    for field in ("resourceRules", "excludeResourceRules"):
        for i, rule in enumerate(listed(resources, field)):
            at = f"{path}.{field}[{i}]"
            yield from _resource_names(listed(rule, "resourceNames"), f"{at}.resourceNames")
            yield from admission_rules.rule(rule, at)


def _resource_names(values: Sequence[str], path: str) -> Errors:
    repeated = set(rules.repeated(values))
    for i, name in enumerate(values):
        yield from rules.problems(f"{path}[{i}]", name, names.path_segment(name))
        if i in repeated:
            yield FieldError.duplicate(f"{path}[{i}]", name)


def _match_conditions(conditions: Sequence[Fields], path: str) -> Errors:
    if len(conditions) > _MOST_CONDITIONS:
        yield FieldError.too_many(path, len(conditions), _MOST_CONDITIONS)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at, name = f"{path}[{i}]", text(condition, "name")
        if not text(condition, "expression").strip():
            yield FieldError.required(f"{at}.expression")
        yield from named(f"{at}.name", name, names.qualified_name)
        if name in seen:
            yield FieldError.duplicate(f"{at}.name", name)
        seen |= {name} - {""}


def _variable(variable: Fields, path: str) -> Errors:
    name = text(variable, "name")
    if not name.strip():
        yield FieldError.required(f"{path}.name", "name is not specified")
    elif not _is_identifier(name) or name in _RESERVED:
        yield FieldError.invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not text(variable, "expression").strip():
        yield FieldError.required(f"{path}.expression", "expression is not specified")


def _check(check: Fields, path: str) -> Errors:
    if not text(check, "expression").strip():
        yield FieldError.required(f"{path}.expression", "expression is not specified")
    for field in ("messageExpression", "message"):
        value = text(check, field)
        if value and not value.strip():
            yield FieldError.invalid(f"{path}.{field}", value, "must be non-empty if specified")
    message = text(check, "message")
    if set(message.strip()) & {"\n", "\r"}:
        yield FieldError.invalid(f"{path}.message", message, "must not contain line breaks")
    yield from admission_rules.known(check, "reason", _REASONS, path)


def _audit_annotations(annotations: Sequence[Fields], policy: str, spec: Fields) -> Errors:
    path = "spec.auditAnnotations"
    if len(annotations) > _MOST_ANNOTATIONS:
        why = f"must not have more than {_MOST_ANNOTATIONS} auditAnnotations"
        shown = [
            {"Key": text(each, "key"), "ValueExpression": text(each, "valueExpression")}
            for each in annotations
        ]
        yield FieldError.invalid(path, shown, why)
    keys: set[str] = set()
    wrong = _by_index(spec, "auditAnnotations")
    for i, annotation in enumerate(annotations):
        at, key = f"{path}[{i}]", text(annotation, "key")
        if policy:
            full = f"{policy}/{key}"
            yield from rules.problems(f"{at}.key", full, names.qualified_name(full))
        else:
            yield FieldError.invalid(f"{at}.key", key, "requires metadata.name be non-empty")
        value = text(annotation, "valueExpression").strip()
        if not value:
            why = "valueExpression is not specified"
            yield FieldError.required(f"{at}.valueExpression", why)
        elif len(value.encode()) > _LONGEST_ANNOTATION:
            why = f"must not exceed {_LONGEST_ANNOTATION} bytes in length"
            yield FieldError.required(f"{at}.valueExpression", why)
        else:
            yield from wrong.get(i, ())
        if key in keys:
            yield FieldError.duplicate(f"{at}.key", key)
        keys.add(key)


def validating_policy_status(new: Document, old: Document) -> Errors:
    for path, warning in numbered(new.content, "status.typeChecking.expressionWarnings"):
        if not text(warning, "warning"):
            yield FieldError.required(f"{path}.warning")
        if not text(warning, "fieldRef").strip():
            yield FieldError.required(f"{path}.fieldRef")
    conditions = typed(listed(new.content, "status.conditions"), list[Condition])
    yield from validate_conditions("status.conditions", conditions)


def mutating_policy(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from _policy(spec)
    yield from _mutable_operations(spec, "matchConstraints")
    yield from _conditions_and_variables(spec)
    mutations = listed(spec, "mutations")
    if not mutations:
        why = "mutations must contain at least one item"
        yield FieldError.required("spec.mutations", why)
    wrong = _by_index(spec, "mutations")
    for i, mutation in enumerate(mutations):
        yield from _mutation(mutation, f"spec.mutations[{i}]")
        yield from wrong.get(i, ())
    policy = text(spec, "reinvocationPolicy")
    yield from rules.one_of("spec.reinvocationPolicy", policy, _REINVOCATION_POLICIES)


def _mutable_operations(spec: Fields, field: str) -> Errors:
    for rule in listed(spec, f"{field}.resourceRules"):
        for operation in listed(rule, "operations"):
            if operation not in _MUTABLE_OPERATIONS:
                path = f"spec.{field}.resourceRules.operations"
                yield FieldError.not_supported(path, operation, _MUTABLE_OPERATIONS)


def _mutation(mutation: Fields, path: str) -> Errors:
    kind = text(mutation, "patchType")
    field = _PATCHES.get(kind)
    if field is None:
        yield from rules.one_of(f"{path}.patchType", kind, sorted(_PATCHES))
        return
    if field not in mutation:
        why = f"must be specified when patchType is {kind}"
        yield FieldError.required(f"{path}.{field}", why)
    elif not text(mutation, f"{field}.expression").strip():
        yield FieldError.required(f"{path}.{field}.expression")
    for other in _PATCHES.values():
        if other != field and other in mutation:
            why = f"must not be specified when patchType is {kind}"
            yield FieldError.invalid(f"{path}.{other}", f"{{{other}}}", why)


def validating_binding(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from _binding(spec)
    yield from _actions(listed(spec, "validationActions"))


def mutating_binding(obj: Document) -> Errors:
    spec = obj.content.get("spec") or {}
    yield from _binding(spec)
    yield from _mutable_operations(spec, "matchResources")


def _binding(spec: Fields) -> Errors:
    yield from named("spec.policyName", text(spec, "policyName"), names.dns_subdomain)
    if "paramRef" in spec:
        yield from _param_ref(spec["paramRef"], "spec.paramRef")
    if "matchResources" in spec:
        yield from _match_resources(spec["matchResources"], "spec.matchResources")


def _param_ref(ref: Fields, path: str) -> Errors:
    name, given = text(ref, "name"), reach(ref, "selector")
    if name:
        yield from rules.problems(f"{path}.name", name, names.path_segment(name))
        if given is not None:
            yield FieldError.forbidden(f"{path}.name", _BOTH)
    if given is not None:
        yield from selector(ref, path, "selector")
        if name:
            yield FieldError.forbidden(f"{path}.selector", _BOTH)
    if not name and given is None:
        yield FieldError.required(path, "one of name or selector must be specified")
    action = text(ref, "parameterNotFoundAction")
    yield from rules.one_of(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"))


def _actions(actions: Sequence[str]) -> Errors:
    path = "spec.validationActions"
    repeated = set(rules.repeated(actions))
    for i, action in enumerate(actions):
        if action not in _ACTIONS:
            yield FieldError.not_supported(f"{path}[{i}]", action, _ACTIONS)
        if i in repeated:
            yield FieldError.duplicate(f"{path}[{i}]", action)
    if {"Deny", "Warn"} <= set(actions):
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information"
            " in the API response and headers serves no purpose)"
        )
        yield FieldError.invalid(path, actions, why)
    if not actions:
        yield FieldError.required(path, "at least one validation action is required")
