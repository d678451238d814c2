"""Validation of an AuthenticationConfiguration, with Kubernetes' messages."""

import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from kedge.apiserver import configuration_file
from kedge.apiserver.authentication.openid_connect.configuration import (
    AuthenticationConfiguration,
    ClaimMapping,
    ClaimMappings,
    ClaimRule,
    ExtraMapping,
    Issuer,
    JwtIssuer,
    UserRule,
)
from kedge.apiserver.authentication.service_accounts import ISSUER
from kedge.machinery import cel, names
from kedge.machinery.cel.syntax import CallNode, Constant, Member, Name, Node, children
from kedge.machinery.errors import FieldError

MOST_ISSUERS: Final = 64
_BOTH: Final = "claim and expression can't both be set"
_NEITHER: Final = "claim or expression is required"
_VERIFIED: Final = (
    "claims.email_verified must be used in claimMappings.username.expression or"
    " claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when"
    " claims.email is used in claimMappings.username.expression"
)
_path = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+").fullmatch
_PATH_RULE: Final = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"


def check(file: AuthenticationConfiguration) -> None:
    """Raise ValueError with everything that is wrong."""
    configuration_file.raise_errors(errors(file))


def errors(file: AuthenticationConfiguration) -> list[FieldError]:
    """Return what is wrong with the file, in upstream's order."""
    if len(file.jwt) > MOST_ISSUERS:
        return [FieldError.too_many("jwt", len(file.jwt), MOST_ISSUERS)]
    found: list[FieldError] = []
    urls: set[str] = set()
    discovery: set[str] = set()
    for i, entry in enumerate(file.jwt):
        at = f"jwt[{i}]"
        found += (each.under(at) for each in _entry_errors(entry, at))
        issuer = entry.issuer
        if issuer.url in urls:
            found.append(FieldError.duplicate(f"{at}.issuer.url", issuer.url))
        if issuer.discovery_url and issuer.discovery_url in discovery:
            found.append(FieldError.duplicate(f"{at}.issuer.discoveryURL", issuer.discovery_url))
        urls.add(issuer.url)
        discovery.add(issuer.discovery_url)
    return [*found, *_anonymous_errors(file)]


def _anonymous_errors(file: AuthenticationConfiguration) -> Iterator[FieldError]:
    access = file.anonymous
    if access is not None and not access.enabled and access.conditions:
        paths = [{"Path": each.path} for each in access.conditions]
        why = "enabled should be set to true when conditions are defined"
        yield FieldError.invalid("anonymous.conditions", paths, why)


def _entry_errors(entry: JwtIssuer, at: str) -> Iterator[FieldError]:
    for each in _issuer_errors(entry.issuer, f"{at}.issuer"):
        yield each.under("issuer")
    uses = _UsedClaims()
    for i, rule in enumerate(_marked(entry.claim_validation_rules)):
        for each in _rule_errors(*rule, uses):
            yield each.under(f"claimValidationRules[{i}]")
    for each in _mapping_errors(entry.claim_mappings, uses):
        yield each.under("claimMappings")
    seen: set[str] = set()
    for i, user_rule in enumerate(entry.user_validation_rules):
        for each in _user_rule_errors(user_rule, seen):
            yield each.under(f"userValidationRules[{i}].expression")


class _UsedClaims:
    """Which of the claims about mail addresses the expressions use."""

    email = False
    email_verified = False

    def add(self, tree: Node, *, in_username: bool = False) -> None:
        if in_username and selects(tree, "email"):
            self.email = True
        if selects(tree, "email_verified"):
            self.email_verified = True


def selects(tree: Node, field: str) -> bool:
    """Whether the expression reads that claim by its name."""
    if isinstance(tree, Member):
        operand: Node = tree.operand
        if tree.field == field and _is_claims(operand):
            return True
    if isinstance(tree, CallNode) and tree.function == "_?._":
        operand, name = tree.arguments
        if _is_claims(operand) and isinstance(name, Constant) and name.value == field:
            return True
    return any(selects(each, field) for each in children(tree))


def _is_claims(node: Node) -> bool:
    return isinstance(node, Name) and node.name == "claims"


def _issuer_errors(issuer: Issuer, at: str) -> Iterator[FieldError]:
    if issuer.url:
        yield from _url_errors("url", issuer.url, refused=(ISSUER,))
    else:
        yield FieldError.required("url")
    if issuer.discovery_url:
        if issuer.url and issuer.url.rstrip("/") == issuer.discovery_url.rstrip("/"):
            why = "discoveryURL must be different from URL"
            yield FieldError.invalid("discoveryURL", issuer.discovery_url, why)
        yield from _url_errors("discoveryURL", issuer.discovery_url)
    yield from _audience_errors(issuer, at)
    if issuer.certificate_authority:
        yield from _authority_errors(issuer.certificate_authority)
    if issuer.egress_selector_type:
        why = "egress selectors are not supported: remove the field"
        if issuer.egress_selector_type not in ("controlplane", "cluster"):
            why = "egress selector must be either controlplane or cluster"
        yield FieldError.invalid("egressSelectorType", issuer.egress_selector_type, why)


def _url_errors(field: str, url: str, refused: tuple[str, ...] = ()) -> Iterator[FieldError]:
    if url in refused:
        why = f"URL must not overlap with disallowed issuers: [{' '.join(refused)}]"
        yield FieldError.invalid(field, url, why)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        yield FieldError.invalid(field, url, f'parse "{url}": {error}')
        return
    if parts.scheme != "https":
        yield FieldError.invalid(field, url, "URL scheme must be https")
    if "@" in parts.netloc:
        yield FieldError.invalid(field, url, "URL must not contain a username or password")
    if parts.query:
        yield FieldError.invalid(field, url, "URL must not contain a query")
    if parts.fragment:
        yield FieldError.invalid(field, url, "URL must not contain a fragment")
    if parts.scheme == "https" and not parts.hostname:
        yield FieldError.invalid(field, url, "URL must contain a host")


def _audience_errors(issuer: Issuer, at: str) -> Iterator[FieldError]:
    audiences, policy = issuer.audiences, issuer.audience_match_policy
    if not audiences:
        yield FieldError.required("audiences", f"at least one {at}.audiences is required")
        return
    for i, audience in enumerate(audiences):
        if not audience:
            yield FieldError.required(f"audiences[{i}]")
        if audience in audiences[:i]:
            yield FieldError.duplicate(f"audiences[{i}]", audience)
    why = "audienceMatchPolicy must be MatchAny for multiple audiences"
    if len(audiences) > 1 and policy != "MatchAny":
        yield FieldError.invalid("audienceMatchPolicy", policy, why)
    why = "audienceMatchPolicy must be empty or MatchAny for single audience"
    if len(audiences) == 1 and policy not in ("", "MatchAny"):
        yield FieldError.invalid("audienceMatchPolicy", policy, why)


def _authority_errors(pem: str) -> Iterator[FieldError]:
    why = "data does not contain any valid RSA or ECDSA certificates"
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=pem)
        if context.cert_store_stats()["x509"]:
            return
    except (ssl.SSLError, ValueError):
        pass
    yield FieldError.invalid("certificateAuthority", "<omitted>", why)


def _marked(rules: Sequence[ClaimRule]) -> Iterator[tuple[ClaimRule, bool]]:
    """Yield each rule, and whether an earlier one has the same claim or expression."""
    seen: set[tuple[str, str]] = set()
    for rule in rules:
        key = (rule.claim, rule.expression)
        yield rule, key in seen
        seen.add(key)


def _rule_errors(rule: ClaimRule, is_repeated: bool, uses: _UsedClaims) -> Iterator[FieldError]:
    if rule.claim and rule.expression:
        yield FieldError.invalid("", rule.claim, _BOTH)
    elif not rule.claim and not rule.expression:
        yield FieldError.required("", _NEITHER)
    elif rule.claim:
        if rule.message:
            why = "may not be specified when claim is set"
            yield FieldError.invalid("message", rule.message, why)
        if is_repeated:
            yield FieldError.duplicate("claim", rule.claim)
    else:
        if rule.required_value:
            why = "may not be specified when expression is set"
            yield FieldError.invalid("requiredValue", rule.required_value, why)
        if is_repeated:
            yield FieldError.duplicate("expression", rule.expression)
        else:
            yield from _expression_errors("expression", rule.expression, uses.add, boolean=True)


def _expression_errors(
    field: str, expression: str, found: Callable[[Node], None], *, boolean: bool = False
) -> Iterator[FieldError]:
    try:
        program = cel.CelProgram(expression, cel.uses.token_claims())
    except cel.CelError as error:
        yield FieldError.invalid(field, expression, f"compilation failed: {error}")
        return
    if boolean and program.type.kind != "bool":
        yield FieldError.invalid(field, expression, "must evaluate to bool")
        return
    found(program.tree)


def _mapping_errors(mappings: ClaimMappings, uses: _UsedClaims) -> Iterator[FieldError]:
    def in_username(tree: Node) -> None:
        uses.add(tree, in_username=True)

    for each in _prefixed_errors(mappings.username, in_username, is_required=True):
        yield each.under("username")
    for each in _prefixed_errors(mappings.groups, lambda tree: None, is_required=False):
        yield each.under("groups")
    uid = mappings.uid
    if uid.claim and uid.expression:
        yield FieldError.invalid("uid", "", _BOTH)
    elif uid.expression:
        yield from _expression_errors("uid.expression", uid.expression, lambda tree: None)
    seen: set[str] = set()
    for i, extra in enumerate(mappings.extra):
        for each in _extra_errors(extra, seen, uses):
            yield each.under(f"extra[{i}]")
    if uses.email and not uses.email_verified:
        yield FieldError.invalid("username.expression", mappings.username.expression, _VERIFIED)


def _prefixed_errors(
    mapping: ClaimMapping, found: Callable[[Node], None], *, is_required: bool
) -> Iterator[FieldError]:
    if mapping.claim and mapping.expression:
        yield FieldError.invalid("", "", _BOTH)
    elif mapping.expression:
        if mapping.prefix is not None:
            why = "may not be specified when expression is set"
            yield FieldError.invalid("prefix", mapping.prefix, why)
        yield from _expression_errors("expression", mapping.expression, found)
    elif mapping.claim:
        if mapping.prefix is None:
            why = (
                "prefix is required when claim is set. It can be set to an empty string to disable"
                " prefixing"
            )
            yield FieldError.required("prefix", why)
    elif is_required:
        yield FieldError.required("", _NEITHER)


def _extra_errors(extra: ExtraMapping, seen: set[str], uses: _UsedClaims) -> Iterator[FieldError]:
    yield from _key_errors(extra.key)
    if extra.key in seen:
        yield FieldError.duplicate("key", extra.key)
        return
    seen.add(extra.key)
    if not extra.value_expression:
        yield FieldError.required("valueExpression")
        return
    yield from _expression_errors("valueExpression", extra.value_expression, uses.add)


def _key_errors(key: str) -> Iterator[FieldError]:
    if not key:
        yield FieldError.required("key")
        return
    domain, _, path = key.partition("/")
    if not domain or not path:
        why = 'must be a domain-prefixed path (such as "acme.io/foo")'
        yield FieldError.invalid("key", key, why)
    else:
        for why in names.dns_subdomain(domain):
            yield FieldError.invalid("key", domain, why)
        if not _path(path):
            yield FieldError.invalid("key", path, _PATH_RULE)
    if key != key.lower():
        yield FieldError.invalid("key", key, "must be lowercase")
    if path and f".{domain}".endswith((".kubernetes.io", ".k8s.io")):
        why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use"
        yield FieldError.invalid("key", key, why)


def _user_rule_errors(rule: UserRule, seen: set[str]) -> Iterator[FieldError]:
    if not rule.expression:
        yield FieldError.required("")
        return
    if rule.expression in seen:
        yield FieldError.duplicate("", rule.expression)
        return
    seen.add(rule.expression)
    try:
        program = cel.CelProgram(rule.expression, cel.uses.token_user())
    except cel.CelError as error:
        yield FieldError.invalid("", rule.expression, f"compilation failed: {error}")
        return
    if program.type.kind != "bool":
        yield FieldError.invalid("", rule.expression, "must evaluate to bool")
