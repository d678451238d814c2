"""Validation of webhook configurations."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from kedge.api import rules
from kedge.api.builtin import admission_rules
from kedge.api.builtin.content import listed, numbered, text
from kedge.api.builtin.validation import Errors, Fields, named, selector
from kedge.api.model import Document
from kedge.machinery import names
from kedge.machinery.cel import CelError
from kedge.machinery.errors import FieldError

_REVIEW_VERSIONS = ("v1", "v1beta1")
_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_MOST_CONDITIONS = 64
_URL_FORM = "; desired format: https://host[/path]"


def validate(obj: Document, *, conditions: bool = True) -> Errors:
    """Everything wrong with a configuration. `conditions`: whether match conditions count."""
    seen: set[str] = set()
    for path, hook in numbered(obj.content, "webhooks"):
        yield from _webhook(hook, path)
        if conditions:
            at = f"{path}.matchConditions"
            yield from _conditions(listed(hook, "matchConditions"), at)
        yield from _review_versions(listed(hook, "admissionReviewVersions"), path)
        if (name := text(hook, "name")) in seen:
            yield FieldError.duplicate(f"{path}.name", name)
        seen |= {name} - {""}


def validate_update(new: Document, old: Document) -> Errors:
    """As upstream: match conditions count only if one of them changed."""
    yield from validate(new, conditions=_all_conditions(new) != _all_conditions(old))


def _all_conditions(obj: Document) -> list[list[Fields]]:
    hooks = listed(obj.content, "webhooks")
    return [list(listed(hook, "matchConditions")) for hook in hooks]


def _webhook(hook: Fields, path: str) -> Errors:
    yield from named(f"{path}.name", text(hook, "name"), names.fully_qualified_name)
    for i, rule in enumerate(listed(hook, "rules")):
        yield from admission_rules.rule(rule, f"{path}.rules[{i}]")
    for field, allowed in (
        ("failurePolicy", ("Fail", "Ignore")),
        ("matchPolicy", ("Equivalent", "Exact")),
        ("reinvocationPolicy", ("IfNeeded", "Never")),
    ):
        yield from admission_rules.known(hook, field, allowed, path)
    if "sideEffects" not in hook:
        why = f"must specify one of {', '.join(_SIDE_EFFECTS)}"
        yield FieldError.required(f"{path}.sideEffects", why)
    yield from admission_rules.known(hook, "sideEffects", _SIDE_EFFECTS, path)
    seconds = hook.get("timeoutSeconds", 1)
    if not 1 <= seconds <= 30:
        why = "the timeout value must be between 1 and 30 seconds"
        yield FieldError.invalid(f"{path}.timeoutSeconds", seconds, why)
    yield from selector(hook, path, "namespaceSelector")
    yield from selector(hook, path, "objectSelector")
    yield from client_config_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")


def _conditions(conditions: Sequence[Fields], path: str) -> Errors:
    if len(conditions) > _MOST_CONDITIONS:
        yield FieldError.too_many(path, len(conditions), _MOST_CONDITIONS)
    seen: set[str] = set()
    for i, condition in enumerate(conditions):
        at, name = f"{path}[{i}]", text(condition, "name")
        yield from _expression(text(condition, "expression").strip(), f"{at}.expression")
        yield from named(f"{at}.name", name, names.qualified_name)
        if name in seen:
            yield FieldError.duplicate(f"{at}.name", name)
        seen |= {name} - {""}


def _expression(expression: str, path: str) -> Errors:
    if not expression:
        yield FieldError.required(path)
        return
    from kedge.machinery.cel import CelCondition, uses

    try:
        CelCondition(expression, uses.match_conditions())
    except CelError as error:
        yield FieldError.invalid(path, expression, str(error))


def client_config_errors(client: Fields, path: str) -> Errors:
    """Yield the errors of the address of a webhook."""
    if ("url" in client) == ("service" in client):
        yield FieldError.required(path, "exactly one of url or service is required")
    elif "url" in client:
        yield from _webhook_url(client["url"], f"{path}.url")
    else:
        yield from _webhook_service(client["service"], f"{path}.service")


def _webhook_url(url: str, path: str) -> Errors:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        yield FieldError.required(path, f"url must be a valid URL: {error}{_URL_FORM}")
        return
    if parts.scheme != "https":
        why = f"'https' is the only allowed URL scheme{_URL_FORM}"
        yield FieldError.invalid(path, parts.scheme, why)
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        yield FieldError.invalid(path, host, f"host must be specified{_URL_FORM}")
    if at:
        yield FieldError.invalid(path, user, "user information is not permitted in the URL")
    if parts.fragment:
        yield FieldError.invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield FieldError.invalid(path, parts.query, "query parameters are not permitted in the URL")


def _webhook_service(service: Fields, path: str) -> Errors:
    for field in ("name", "namespace"):
        if not text(service, field):
            yield FieldError.required(f"{path}.{field}")
    port = service.get("port", 443)
    if found := names.port_number(port):
        yield FieldError.invalid(f"{path}.port", port, f"port is not valid: {', '.join(found)}")
    where = text(service, "path")
    if where in ("", "/"):
        return
    if not where.startswith("/"):
        yield FieldError.invalid(f"{path}.path", where, "must start with a '/'")
    for i, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            yield FieldError.invalid(f"{path}.path", where, f"segment[{i}] may not be empty")
            continue
        for problem in names.dns_subdomain(step):
            yield FieldError.invalid(f"{path}.path", where, f"segment[{i}]: {problem}")


def _review_versions(versions: Sequence[str], hook: str) -> Errors:
    missing = f"must specify one of {', '.join(_REVIEW_VERSIONS)}"
    yield from review_version_errors(versions, f"{hook}.admissionReviewVersions", missing)


def review_version_errors(versions: Sequence[str], path: str, missing: str = "") -> Errors:
    """Yield the errors of the versions of a review that a webhook understands."""
    if not versions:
        yield FieldError.required(path, missing)
        return
    repeated = set(rules.repeated(versions))
    for i, version in enumerate(versions):
        if i in repeated:
            yield FieldError.invalid(f"{path}[{i}]", version, "duplicate version")
        else:
            yield from rules.problems(f"{path}[{i}]", version, names.dns1035_label(version))
    if not set(versions) & set(_REVIEW_VERSIONS):
        wanted = ", ".join(_REVIEW_VERSIONS)
        yield FieldError.invalid(path, versions, f"must include at least one of {wanted}")
