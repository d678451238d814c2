"""Service account tokens: what they claim, and whether the claims hold in this cluster now."""

import base64
import hmac
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from kedge.api.core_v1 import node, secret, service_account
from kedge.api.core_v1.pod import pod
from kedge.api.resource import Resource
from kedge.apiserver.authentication import jwt
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import Item, WatchCache
from kedge.machinery import names
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time
from kedge.machinery.errors import not_found

log = logging.getLogger(__name__)

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
AUDIENCES: Final = (ISSUER,)
"""A token must name one of these audiences to be valid for this server."""
LEGACY_ISSUER: Final = "kubernetes/serviceaccount"
"""The issuer of tokens in Secrets: they are valid as long as the Secret exists."""
INVALID_SINCE: Final = "kubernetes.io/legacy-token-invalid-since"

TOKEN_SECONDS: Final = 3607
"""The requested lifetime of the token that every pod gets. It is slightly more than an hour, as in
Kubernetes, to tell these tokens from others."""
STALE: Final = timedelta(minutes=1)
"""How often the use of a stale token is counted."""

CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
POD_NAME: Final = "authentication.kubernetes.io/pod-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
NODE_UID: Final = "authentication.kubernetes.io/node-uid"

_PREFIX: Final = "system:serviceaccount:"
_VOID: Final = "service account token has been invalidated"
_FOR_EVER: Final = datetime.max.replace(tzinfo=UTC)


class Ref(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object, and not a later one of the same name."""

    name: str = ""
    uid: str = ""


class Bound(msgspec.Struct, frozen=True, omit_defaults=True):
    """The account of a token, and the objects that it must not outlive."""

    namespace: str = ""
    serviceaccount: Ref = Ref()
    pod: Ref | None = None
    secret: Ref | None = None
    node: Ref | None = None
    warnafter: jwt.Seconds = 0
    """When the token should have been renewed; 0 if that is when it expires."""


class TokenClaims(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was asked for."""

    iss: str = ISSUER
    sub: str
    aud: str | tuple[str, ...]
    exp: jwt.Seconds
    iat: jwt.Seconds
    nbf: jwt.Seconds
    jti: str = ""
    bound: Bound = msgspec.field(name="kubernetes.io")


class LegacyClaims(msgspec.Struct, frozen=True, kw_only=True):
    """A token that lies in a Secret."""

    iss: str = LEGACY_ISSUER
    sub: str
    namespace: str = msgspec.field(name="kubernetes.io/serviceaccount/namespace")
    secret: str = msgspec.field(name="kubernetes.io/serviceaccount/secret.name")
    name: str = msgspec.field(name="kubernetes.io/serviceaccount/service-account.name")
    uid: str = msgspec.field(name="kubernetes.io/serviceaccount/service-account.uid")


class _Issued(msgspec.Struct):
    iss: str = ""


class BoundObject(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Which object it is, and until when it is to be there if its end is decided."""

    uid: str = ""
    deletion_timestamp: str = ""


class _IdentifiedObject(msgspec.Struct, frozen=True, gc=False):
    metadata: BoundObject = BoundObject()


_issued = msgspec.json.Decoder(_Issued)
_claims = msgspec.json.Decoder(TokenClaims)
_legacy = msgspec.json.Decoder(LegacyClaims)
_identified = msgspec.json.Decoder(_IdentifiedObject)


def identity(item: Item) -> BoundObject:
    return _identified.decode(item.body).metadata


class Verified(NamedTuple):
    """A token that holds: who has it, for whom it is meant, and on what that depends."""

    user: User
    audiences: tuple[str, ...]
    until: datetime
    depends_on: tuple[str, ...]
    """The keys of the objects without which it no longer holds."""


def user_name(namespace: str, name: str) -> str:
    return f"{_PREFIX}{namespace}:{name}"


def split_user_name(user: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that goes by that user name, if one could."""
    if not user.startswith(_PREFIX):
        return None
    namespace, separator, name = user[len(_PREFIX) :].partition(":")
    if not separator or names.dns_label(namespace) or names.dns_subdomain(name):
        return None
    return namespace, name


def groups_of(namespace: str) -> tuple[str, str]:
    """The groups of every service account in a namespace."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


class ServiceAccountTokens:
    """Checks tokens against the accounts, pods, Secrets and nodes that there are."""

    def __init__(self, cache: WatchCache, key: jwt.TokenKey, clock: Clock) -> None:
        self._cache = cache
        self._key = key
        self._clock = clock
        self.counts: Counter[str] = Counter()
        """Verified tokens, by `valid` and `stale`."""

    def verified(self, token: bytes, audiences: Sequence[str]) -> Verified | None:
        """Return the holder of a token; None if it is no service account token.

        Raises CredentialRefused if it is not valid, or not for one of the audiences.
        """
        parsed = jwt.parse(token)
        if parsed is None:
            return None
        try:
            issuer = _issued.decode(parsed.payload).iss
            if issuer == ISSUER:
                return self._verify(parsed, _claims.decode(parsed.payload), audiences)
            if issuer == LEGACY_ISSUER:
                legacy = _legacy.decode(parsed.payload)
                return self._verify_legacy(parsed, legacy, token, audiences)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise CredentialRefused("service account token claims could not be read") from None
        return None

    def _verify(
        self, parsed: jwt.Unverified, claims: TokenClaims, audiences: Sequence[str]
    ) -> Verified:
        now = self._clock.now()
        # Before the signature, as it is cheap: an expired token may well be tried again and again.
        jwt.check_times(now, expires=claims.exp, begins=claims.nbf, issued=claims.iat)
        parsed.check(self._key)
        meant_for = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        common_audiences(meant_for or AUDIENCES, audiences)
        bound = claims.bound
        account = bound.serviceaccount
        if claims.sub != user_name(bound.namespace, account.name):
            raise CredentialRefused("sub claim is invalid")
        living = _Living(self._cache, now, jwt.moment(claims.exp) + jwt.LEEWAY)
        living.account(bound.namespace, account)
        if bound.secret is not None:
            living.bound(secret.RESOURCE, bound.namespace, bound.secret)
        if bound.pod is not None:
            living.bound(pod.RESOURCE, bound.namespace, bound.pod)
        elif bound.node is not None:
            living.bound(node.RESOURCE, "", bound.node)
        user = User(claims.sub, groups_of(bound.namespace), account.uid, _extra(claims))
        until = self._counted(claims, now, living.until)
        return Verified(user, meant_for or AUDIENCES, until, tuple(living.keys))

    def _counted(self, claims: TokenClaims, now: datetime, until: datetime) -> datetime:
        """Count a token, and return how long it is remembered: stale ones are counted often."""
        warning = claims.bound.warnafter
        if not warning or now <= jwt.moment(warning):
            self.counts["valid"] += 1
            return min(until, jwt.moment(warning)) if warning else until
        self.counts["stale"] += 1
        late = int((now - jwt.moment(warning)).total_seconds())
        log.warning("stale token used user=%s seconds_after_warning=%d", claims.sub, late)
        return min(until, now + STALE)

    def _verify_legacy(
        self, parsed: jwt.Unverified, claims: LegacyClaims, token: bytes, audiences: Sequence[str]
    ) -> Verified:
        parsed.check(self._key)
        common_audiences(AUDIENCES, audiences)
        if claims.sub != user_name(claims.namespace, claims.name):
            raise CredentialRefused("sub claim is invalid")
        living = _Living(self._cache, self._clock.now(), _FOR_EVER)
        kept = living.bound(secret.RESOURCE, claims.namespace, Ref(claims.secret))
        _check_kept(secret.RESOURCE.decode(kept.body), token)
        living.account(claims.namespace, Ref(claims.name, claims.uid))
        user = User(claims.sub, groups_of(claims.namespace), claims.uid)
        return Verified(user, AUDIENCES, living.until, tuple(living.keys))


class _Living:
    """The objects that a token depends on, looked up one after the other."""

    def __init__(self, cache: WatchCache, now: datetime, until: datetime) -> None:
        self._cache = cache
        self._now = now
        self.until = until
        """How long the token holds if nothing changes."""
        self.keys: list[str] = []

    def account(self, namespace: str, ref: Ref) -> None:
        item = self._find(service_account.RESOURCE, namespace, ref)
        if item is None:
            raise CredentialRefused(str(not_found("", "serviceaccounts", ref.name)))
        meta = identity(item)
        if meta.uid != ref.uid:
            raise CredentialRefused(
                f"service account UID ({meta.uid}) does not match claim ({ref.uid})"
            )
        if self._ended(meta):
            raise CredentialRefused(f"service account {namespace}/{ref.name} has been deleted")

    def bound(self, resource: Resource[Any], namespace: str, ref: Ref) -> Item:
        """An object to which the token is bound; without a uid, whichever has that name."""
        item = self._find(resource, namespace, ref)
        if item is None:
            raise CredentialRefused(_VOID)
        meta = identity(item)
        if ref.uid and meta.uid != ref.uid:
            kind = resource.singular
            raise CredentialRefused(
                f"{kind} UID ({meta.uid}) does not match service account {kind} ref claim"
                f" ({ref.uid})"
            )
        if self._ended(meta):
            raise CredentialRefused(_VOID)
        return item

    def _find(self, resource: Resource[Any], namespace: str, ref: Ref) -> Item | None:
        key = resource.key(namespace, ref.name)
        self.keys.append(key)
        return self._cache.of(resource).get(key)

    def _ended(self, meta: BoundObject) -> bool:
        """Whether the object should be gone by now; if it is to go later, the token goes too."""
        if not meta.deletion_timestamp:
            return False
        ends = parse_time(meta.deletion_timestamp) + jwt.LEEWAY
        self.until = min(self.until, ends)
        return ends < self._now


def common_audiences(meant_for: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """For which of those that are wanted the token is meant; raises Refused if for none."""
    common = tuple(audience for audience in meant_for if audience in wanted)
    if not common:
        raise CredentialRefused(
            f"token audiences {_listed(meant_for)} is invalid for the target audiences"
            f" {_listed(wanted)}"
        )
    return common


def _check_kept(kept: secret.Secret, token: bytes) -> None:
    """Raise Refused unless the token is the one that lies in the Secret."""
    if kept.metadata.deletionTimestamp:
        raise CredentialRefused("Token has been invalidated")
    if not hmac.compare_digest(base64.b64decode(kept.data.get("token", "")), token):
        raise CredentialRefused("Token does not match server's copy")
    if kept.metadata.labels.get(INVALID_SINCE):
        raise CredentialRefused("the token has been marked invalid")


def _extra(claims: TokenClaims) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the extra fields of the user, by key."""
    known: dict[str, str] = {}
    if claims.jti:
        known[CREDENTIAL_ID] = f"JTI={claims.jti}"
    if claims.bound.node is not None:
        known[NODE_NAME] = claims.bound.node.name
        known[NODE_UID] = claims.bound.node.uid
    if claims.bound.pod is not None:
        known[POD_NAME] = claims.bound.pod.name
        known[POD_UID] = claims.bound.pod.uid
    return tuple((key, (value,)) for key, value in known.items() if value)


def _listed(values: Sequence[str]) -> str:
    quoted = (msgspec.json.encode(value).decode() for value in values)
    return f"[{' '.join(quoted)}]"
