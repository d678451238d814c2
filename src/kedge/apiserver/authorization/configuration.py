"""AuthorizationConfiguration: the authorizers to ask, in order; with Kubernetes' messages."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.apiserver import configuration_file
from kedge.machinery import cel, names
from kedge.machinery.durations import parse_duration
from kedge.machinery.errors import FieldError

KIND: Final = "AuthorizationConfiguration"
API_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")
WEBHOOK: Final = "Webhook"
TYPES: Final = ("AlwaysAllow", "AlwaysDeny", "Node", "RBAC", WEBHOOK)
MOST_CONDITIONS: Final = 64
_LONGEST_TIMEOUT: Final = 30 * 10**9


class _AuthorizationPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file, in which every field is known."""


class MatchCondition(_AuthorizationPart, frozen=True):
    """An expression that must hold before the webhook is asked."""

    expression: str = ""


class ConnectionInfo(_AuthorizationPart, frozen=True):
    """How the webhook is reached."""

    type: str = ""
    kube_config_file: str | None = None


class WebhookAuthorizerConfiguration(_AuthorizationPart, frozen=True):
    """The configuration of a webhook."""

    authorized_ttl: str = msgspec.field(name="authorizedTTL", default="5m")
    cache_authorized_requests: bool = True
    unauthorized_ttl: str = msgspec.field(name="unauthorizedTTL", default="30s")
    cache_unauthorized_requests: bool = True
    timeout: str = ""
    subject_access_review_version: str = ""
    match_condition_subject_access_review_version: str = ""
    failure_policy: str = ""
    connection_info: ConnectionInfo = ConnectionInfo()
    match_conditions: Sequence[MatchCondition] = ()


class AuthorizerConfiguration(_AuthorizationPart, frozen=True):
    """One authorizer."""

    type: str = ""
    name: str = ""
    webhook: WebhookAuthorizerConfiguration | None = None


class AuthorizationConfiguration(_AuthorizationPart, frozen=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    authorizers: Sequence[AuthorizerConfiguration] = ()


def read(path: Path) -> AuthorizationConfiguration:
    """Return the configuration in a file; a ConfigurationFileError says what is wrong."""
    return configuration_file.read(path, parse)


def parse(document: Any) -> AuthorizationConfiguration:
    """Return the configuration in a document; ValueError if it is malformed or invalid."""
    found = configuration_file.parsed(document, AuthorizationConfiguration, KIND, API_VERSIONS)
    configuration_file.raise_errors(errors(found))
    return found


def errors(file: AuthorizationConfiguration) -> Iterator[FieldError]:
    """Yield what is wrong with the file, in upstream's order."""
    if not file.authorizers:
        why = "at least one authorization mode must be defined"
        yield FieldError.required("authorizers", why)
    types: set[str] = set()
    taken: set[str] = set()
    for i, each in enumerate(file.authorizers):
        for error in _authorizer_errors(each, types, taken):
            yield error.under(f"authorizers[{i}]")


def _authorizer_errors(
    each: AuthorizerConfiguration, types: set[str], taken: set[str]
) -> Iterator[FieldError]:
    if not each.type:
        yield FieldError.required("type")
        return
    if each.type not in TYPES:
        yield FieldError.not_supported("type", each.type, TYPES)
        return
    if each.type in types and each.type != WEBHOOK:
        yield FieldError.duplicate("type", each.type)
        return
    types.add(each.type)
    yield from _name_errors(each.name, taken)
    taken.add(each.name)
    if each.type != WEBHOOK:
        if each.webhook is not None:
            why = "may only be specified when type=Webhook"
            yield FieldError.invalid("webhook", "non-null", why)
    elif each.webhook is None:
        yield FieldError.required("webhook", "required when type=Webhook")
    else:
        # Without "webhook" in the path, as upstream has it.
        yield from _webhook_errors(each.webhook)


def _name_errors(name: str, taken: set[str]) -> Iterator[FieldError]:
    if not name:
        yield FieldError.required("name")
    elif name in taken:
        yield FieldError.duplicate("name", name)
    elif problems := names.dns_subdomain(name):
        why = f"authorizer name is invalid: {', '.join(problems)}"
        yield FieldError.invalid("name", name, why)


def _webhook_errors(hook: WebhookAuthorizerConfiguration) -> Iterator[FieldError]:
    yield from _duration_errors("timeout", hook.timeout, _LONGEST_TIMEOUT)
    yield from _duration_errors("authorizedTTL", hook.authorized_ttl)
    yield from _duration_errors("unauthorizedTTL", hook.unauthorized_ttl)
    version = hook.subject_access_review_version
    yield from _choice_errors("subjectAccessReviewVersion", version, ("v1", "v1beta1"))
    matched = hook.match_condition_subject_access_review_version
    field = "matchConditionSubjectAccessReviewVersion"
    if matched:
        yield from _choice_errors(field, matched, ("v1",))
    elif hook.match_conditions:
        yield FieldError.required(field, "required if match conditions are specified")
    yield from _choice_errors("failurePolicy", hook.failure_policy, ("NoOpinion", "Deny"))
    for error in _connection_errors(hook.connection_info):
        yield error.under("connectionInfo")
    yield from _condition_errors(hook.match_conditions)


def _choice_errors(field: str, value: str, choices: Sequence[str]) -> Iterator[FieldError]:
    if not value:
        yield FieldError.required(field)
    elif value not in choices:
        yield FieldError.not_supported(field, value, choices)


def _duration_errors(field: str, text: str, longest: int = 0) -> Iterator[FieldError]:
    try:
        value = parse_duration(text) if text else 0
    except ValueError as error:
        yield FieldError.invalid(field, text, str(error))
        return
    if not value:
        yield FieldError.required(field)
    elif longest and not 0 < value <= longest:
        yield FieldError.invalid(field, text, "must be > 0s and <= 30s")
    elif value < 0:
        yield FieldError.invalid(field, text, "must be > 0s")


def _connection_errors(info: ConnectionInfo) -> Iterator[FieldError]:
    file = info.kube_config_file
    if not info.type:
        yield FieldError.required("type")
    elif info.type == "InClusterConfig":
        why = "not supported: the server is not in a pod, use KubeConfigFile"
        yield FieldError.invalid("type", info.type, why)
    elif info.type != "KubeConfigFile":
        yield FieldError.not_supported("type", info.type, ("InClusterConfig", "KubeConfigFile"))
    elif not file:
        yield FieldError.required("kubeConfigFile")
    elif not os.path.isabs(file):
        yield FieldError.invalid("kubeConfigFile", file, "must be an absolute path")
    else:
        try:
            if not stat.S_ISREG(os.stat(file).st_mode):
                yield FieldError.invalid("kubeConfigFile", file, "must be a regular file")
        except OSError as error:
            why = f"error loading file: {error.strerror}"
            yield FieldError.invalid("kubeConfigFile", file, why)


def _condition_errors(conditions: Sequence[MatchCondition]) -> Iterator[FieldError]:
    if len(conditions) > MOST_CONDITIONS:
        yield FieldError.too_many("matchConditions", len(conditions), MOST_CONDITIONS)
        return
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        field, expression = f"matchConditions[{i}].expression", condition.expression
        if not expression.strip():
            yield FieldError.required(field)
        elif expression in seen:
            yield FieldError.duplicate(field, expression)
        else:
            seen.add(expression)
            try:
                cel.CelCondition(expression, cel.uses.access_review())
            except cel.CelError as error:
                yield FieldError.invalid(field, expression, str(error))
