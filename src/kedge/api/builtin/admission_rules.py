"""Validation of the rules that webhooks and admission policies match requests with."""

from collections.abc import Sequence, Set
from typing import Final

from kedge.api.builtin.content import listed
from kedge.api.builtin.validation import Errors, Fields
from kedge.machinery.errors import FieldError

_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")


def known(fields: Fields, name: str, allowed: Sequence[str], path: str) -> Errors:
    """The field, if given at all, must be one of these; an empty text is not."""
    value = fields.get(name)
    if value is not None and value not in allowed:
        yield FieldError.not_supported(f"{path}.{name}", value, allowed)


def rule(fields: Fields, path: str) -> Errors:
    """Yield the errors of a rule: operations, groups, versions, resources and scope."""
    operations = listed(fields, "operations")
    if not operations:
        yield FieldError.required(f"{path}.operations")
    yield from _alone(operations, f"{path}.operations", "operations")
    for i, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield FieldError.not_supported(f"{path}.operations[{i}]", operation, _OPERATIONS)
    for field, words in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        if not fields.get(field):
            yield FieldError.required(f"{path}.{field}")
        yield from _alone(listed(fields, field), f"{path}.{field}", words)
    for i, version in enumerate(listed(fields, "apiVersions")):
        if not version:
            yield FieldError.required(f"{path}.apiVersions[{i}]")
    yield from _resources(listed(fields, "resources"), f"{path}.resources")
    yield from known(fields, "scope", _SCOPES, path)


def _alone(values: Sequence[str], path: str, words: str) -> Errors:
    if len(values) > 1 and "*" in values:
        why = f"if '*' is present, must not specify other {words}"
        yield FieldError.invalid(path, values, why)


def _resources(resources: Sequence[str], path: str) -> Errors:
    if not resources:
        yield FieldError.required(path)
    before: set[str] = set()
    for i, resource in enumerate(resources):
        if not resource:
            yield FieldError.required(f"{path}[{i}]")
        yield from _covered(resource, before, f"{path}[{i}]")
        before.add(resource)
    if len(resources) > 1 and "*/*" in resources:
        why = "if '*/*' is present, must not specify other resources"
        yield FieldError.invalid(path, resources, why)
    whole = [each for each in resources if each and "/" not in each]
    # Upstream remembers only the last of them.
    if "*" in whole and whole[-1] != "*":
        why = "if '*' is present, must not specify other resources without subresources"
        yield FieldError.invalid(path, resources, why)


def _covered(resource: str, before: Set[str], path: str) -> Errors:
    """A subresource is listed though a wildcard before it covers it."""
    kind, slash, part = resource.partition("/")
    for wildcard in (f"{kind}/*", f"*/{part}"):
        if slash and wildcard in before:
            why = f"if '{wildcard}' is present, must not specify {resource}"
            yield FieldError.invalid(path, resource, why)
