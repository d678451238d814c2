"""AuthenticationConfiguration: the issuers whose tokens the server accepts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from kedge.apiserver import configuration_file

KIND: Final = "AuthenticationConfiguration"
API_VERSIONS: Final = ("apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1")


class _AuthenticationPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A part of the file, in which every field is known."""


class Issuer(_AuthenticationPart, frozen=True):
    """An issuer of tokens, their audiences, and the place of its keys."""

    url: str = ""
    discovery_url: str = msgspec.field(name="discoveryURL", default="")
    certificate_authority: str = ""
    audiences: Sequence[str] = ()
    audience_match_policy: str = ""
    egress_selector_type: str = ""


class ClaimRule(_AuthenticationPart, frozen=True):
    """A condition on the claims of a token."""

    claim: str = ""
    required_value: str = ""
    expression: str = ""
    message: str = ""


class ClaimMapping(_AuthenticationPart, frozen=True):
    """Where a text of the user comes from."""

    claim: str = ""
    prefix: str | None = None
    expression: str = ""


class UidMapping(_AuthenticationPart, frozen=True):
    """Where the uid of the user comes from."""

    claim: str = ""
    expression: str = ""


class ExtraMapping(_AuthenticationPart, frozen=True):
    """Where an extra field of the user comes from."""

    key: str = ""
    value_expression: str = ""


class ClaimMappings(_AuthenticationPart, frozen=True):
    """How claims become a user."""

    username: ClaimMapping = ClaimMapping()
    groups: ClaimMapping = ClaimMapping()
    uid: UidMapping = UidMapping()
    extra: Sequence[ExtraMapping] = ()


class UserRule(_AuthenticationPart, frozen=True):
    """A condition on the resulting user."""

    expression: str = ""
    message: str = ""


class JwtIssuer(_AuthenticationPart, frozen=True):
    """One entry of `jwt`."""

    issuer: Issuer = Issuer()
    claim_validation_rules: Sequence[ClaimRule] = ()
    claim_mappings: ClaimMappings = ClaimMappings()
    user_validation_rules: Sequence[UserRule] = ()


class AnonymousCondition(_AuthenticationPart, frozen=True):
    """A path that may be requested without credentials."""

    path: str = ""


class AnonymousAccess(_AuthenticationPart, frozen=True):
    """Which requests need no credentials."""

    enabled: bool = False
    conditions: Sequence[AnonymousCondition] = ()

    def allows(self, path: str) -> bool:
        if not self.enabled:
            return False
        return not self.conditions or any(path == each.path for each in self.conditions)


class AuthenticationConfiguration(_AuthenticationPart, frozen=True):
    """The whole file."""

    api_version: str = ""
    kind: str = ""
    jwt: Sequence[JwtIssuer] = ()
    anonymous: AnonymousAccess | None = None


def parse(document: Any) -> AuthenticationConfiguration:
    """Return the configuration in a document; ValueError if it is malformed or invalid."""
    from kedge.apiserver.authentication.openid_connect import validation

    found = configuration_file.parsed(document, AuthenticationConfiguration, KIND, API_VERSIONS)
    validation.check(found)
    return found


def read(path: Path) -> AuthenticationConfiguration:
    """Return the configuration in a file; a ConfigurationFileError says what is wrong."""
    return configuration_file.read(path, parse)
