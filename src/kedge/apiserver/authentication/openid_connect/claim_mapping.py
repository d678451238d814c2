"""From the claims of a token to a user: mappings and rules, compiled once."""

from collections.abc import Mapping, Sequence
from typing import Any

from kedge.apiserver.authentication.openid_connect.configuration import (
    ClaimMapping,
    JwtIssuer,
)
from kedge.apiserver.authentication.openid_connect.id_token import Claims
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.service_accounts import CREDENTIAL_ID
from kedge.apiserver.request import User
from kedge.machinery import cel

_ABSENT = "claim not present"
_NO_STRINGS = "expression must return a string or a list of strings"


class _Expression:
    """An expression on one variable."""

    def __init__(self, text: str, environment: "cel.Environment", variable: str) -> None:
        self.text = text
        self._variable = variable
        self._program = cel.CelProgram(text, environment)

    def value(self, given: Any, patience: int | None) -> Any:
        """Return the value; CelError if there is none."""
        try:
            return self._program.run({self._variable: given}, patience=patience)[0]
        except cel.CelPatienceError:
            raise
        except cel.CelError as error:
            raise cel.CelError(f"expression '{self.text}' resulted in error: {error}") from None


def _of_claims(text: str) -> _Expression | None:
    return _Expression(text, cel.uses.token_claims(), "claims") if text else None


class ClaimsToUser:
    """The mappings and rules of one issuer."""

    def __init__(self, entry: JwtIssuer) -> None:
        mappings = entry.claim_mappings
        self._mappings = mappings
        self._username = _of_claims(mappings.username.expression)
        self._groups = _of_claims(mappings.groups.expression)
        self._uid = _of_claims(mappings.uid.expression)
        self._extra = [
            (each.key, _Expression(each.value_expression, cel.uses.token_claims(), "claims"))
            for each in mappings.extra
        ]
        rules = entry.claim_validation_rules
        self._required = {rule.claim: rule.required_value for rule in rules if rule.claim}
        self._claim_rules = [
            (_Expression(rule.expression, cel.uses.token_claims(), "claims"), rule.message)
            for rule in rules
            if rule.expression
        ]
        self._user_rules = [
            (_Expression(rule.expression, cel.uses.token_user(), "user"), rule.message)
            for rule in entry.user_validation_rules
        ]

    def user(self, claims: Claims, patience: int | None = None) -> User:
        """Return the user; CredentialRefused if a claim is missing or a rule does not hold.

        CelPatienceError if that takes longer than `patience` allows.
        """
        user = User(
            self._name_of(claims, patience),
            tuple(self._groups_of(claims, patience)),
            self._uid_of(claims, patience),
            tuple(self._extra_of(claims, patience).items()),
        )
        self._check_required(claims)
        what = "claim validation expression"
        _check_rules(self._claim_rules, claims, patience, f"oidc: error evaluating {what}")
        what = "user info validation rule"
        info = _user_value(user)
        _check_rules(self._user_rules, info, patience, f"oidc: error evaluating {what}")
        return user

    def _name_of(self, claims: Claims, patience: int | None) -> str:
        if self._username is not None:
            name = _evaluated(self._username, claims, patience, "username")
            if not isinstance(name, str):
                why = "username claim expression must return a string"
                raise _failed("username", why)
            if not name:
                raise CredentialRefused("oidc: empty username via CEL expression is not allowed")
            return name
        claim = self._mappings.username.claim
        name = _text_claim(claims, claim, f'oidc: parse username claims "{claim}"')
        if claim == "email" and claims.get("email_verified", True) is not True:
            if not isinstance(claims["email_verified"], bool):
                raise CredentialRefused("oidc: parse 'email_verified' claim: it is not a boolean")
            raise CredentialRefused("oidc: email not verified")
        return f"{self._mappings.username.prefix or ''}{name}"

    def _groups_of(self, claims: Claims, patience: int | None) -> Sequence[str]:
        mapping = self._mappings.groups
        if mapping.claim:
            return _claimed_groups(claims, mapping)
        if self._groups is None:
            return ()
        return _strings(_evaluated(self._groups, claims, patience, "group"), "group")

    def _uid_of(self, claims: Claims, patience: int | None) -> str:
        claim = self._mappings.uid.claim
        if claim:
            return _text_claim(claims, claim, f'oidc: parse uid claim "{claim}"')
        if self._uid is None:
            return ""
        uid = _evaluated(self._uid, claims, patience, "uid")
        if not isinstance(uid, str):
            raise _failed("uid", "uid claim expression must return a string")
        return uid

    def _extra_of(self, claims: Claims, patience: int | None) -> Mapping[str, tuple[str, ...]]:
        extra: dict[str, tuple[str, ...]] = {}
        if isinstance(claims.get("jti"), str) and claims["jti"]:
            extra[CREDENTIAL_ID] = (f"JTI={claims['jti']}",)
        for key, expression in self._extra:
            value = _evaluated(expression, claims, patience, "extra")
            values = tuple(_strings(value, "extra"))
            if values:
                extra[key] = values
        return extra

    def _check_required(self, claims: Claims) -> None:
        for claim, wanted in self._required.items():
            if claim not in claims:
                raise CredentialRefused(f"oidc: required claim {claim} not present in ID token")
            found = _text_claim(claims, claim, f"oidc: parse claim {claim}")
            if found != wanted:
                raise CredentialRefused(
                    f"oidc: required claim {claim} value does not match. Got = {found}, want ="
                    f" {wanted}"
                )


def _failed(what: str, why: str) -> CredentialRefused:
    return CredentialRefused(f"oidc: error evaluating {what} claim expression: {why}")


def _evaluated(expression: _Expression, claims: Claims, patience: int | None, what: str) -> Any:
    try:
        return expression.value(claims, patience)
    except cel.CelPatienceError:
        raise
    except cel.CelError as error:
        raise _failed(what, str(error)) from None


def _text_claim(claims: Claims, name: str, what: str) -> str:
    if name not in claims:
        raise CredentialRefused(f"{what}: {_ABSENT}")
    value = claims[name]
    if value is None:
        return ""  # as JSON's null is read into a string
    if not isinstance(value, str):
        raise CredentialRefused(f"{what}: it is not a string")
    return value


def _claimed_groups(claims: Claims, mapping: ClaimMapping) -> Sequence[str]:
    if mapping.claim not in claims:
        return ()
    value = claims[mapping.claim]
    groups = [value] if isinstance(value, str) else value or []
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in groups):
        why = "it is neither a string nor a list of strings"
        raise CredentialRefused(f'oidc: parse groups claim "{mapping.claim}": {why}')
    return [f"{mapping.prefix or ''}{group}" for group in groups]


def _strings(value: Any, what: str) -> Sequence[str]:
    """Return the texts that an expression stands for; empty ones do not count."""
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise _failed(what, _NO_STRINGS)
    return [each for each in values if each]


def _check_rules(
    rules: Sequence[tuple[_Expression, str]], given: Any, patience: int | None, what: str
) -> None:
    for expression, message in rules:
        try:
            holds = expression.value(given, patience)
        except cel.CelPatienceError:
            raise
        except cel.CelError as error:
            raise CredentialRefused(f"{what}: {error}") from None
        if not isinstance(holds, bool):
            raise CredentialRefused(f"{what}: validation expression must return a boolean")
        if not holds:
            why = f"validation expression '{expression.text}' failed: {message}"
            raise CredentialRefused(f"{what}: {why}")


def _user_value(user: User) -> dict[str, Any]:
    return {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra},
    }
