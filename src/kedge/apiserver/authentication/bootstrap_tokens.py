"""Bootstrap tokens: Secrets in kube-system with which a machine that has nothing else can join."""

import base64
import binascii
import hmac
import re
from datetime import datetime
from typing import Final

from kedge.api.core_v1.secret import RESOURCE, Secret
from kedge.apiserver.request import User
from kedge.apiserver.watchcache import ResourceCache
from kedge.machinery.clock import Clock
from kedge.machinery.durations import parse_time

NAMESPACE: Final = "kube-system"
TYPE: Final = "bootstrap.kubernetes.io/token"
GROUP: Final = "system:bootstrappers"

_is_token = re.compile(rb"([a-z0-9]{6})\.([a-z0-9]{16})").fullmatch
_is_group = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]").fullmatch


class BootstrapTokens:
    """Looks them up where they are kept."""

    def __init__(self, secrets: ResourceCache, clock: Clock) -> None:
        self._secrets = secrets
        self._clock = clock

    def user(self, token: bytes) -> User | None:
        """Return the user of a bootstrap token; None if it is unknown or may not authenticate."""
        match = _is_token(token)
        if match is None:
            return None
        id_, code = match[1].decode(), match[2]
        item = self._secrets.get(RESOURCE.key(NAMESPACE, f"bootstrap-token-{id_}"))
        if item is None:
            return None
        kept = RESOURCE.decode(item.body)
        if not hmac.compare_digest(_value(kept, "token-secret").encode(), code):
            return None
        groups = groups_of(kept)
        if groups is None or not usable(kept, id_, self._clock.now()):
            return None
        return User(f"system:bootstrap:{id_}", groups)


def usable(kept: Secret, id_: str, now: datetime) -> bool:
    """Whether the token of that id may be used to authenticate."""
    return (
        kept.type == TYPE
        and not kept.metadata.deletionTimestamp
        and _value(kept, "token-id") == id_
        and _value(kept, "usage-bootstrap-authentication") == "true"
        and not expired(kept, now)
    )


def expired(kept: Secret, now: datetime) -> bool:
    """Whether the token's time is over; a time that cannot be read is over, too."""
    text = _value(kept, "expiration")
    if not text:
        return False
    try:
        return parse_time(text) <= now
    except ValueError:
        return True


def groups_of(kept: Secret) -> tuple[str, ...] | None:
    """The groups that the token stands for; None if one of them is not for such tokens."""
    listed = _value(kept, "auth-extra-groups")
    extra = listed.split(",") if listed else []
    if not all(map(_is_group, extra)):
        return None
    return tuple(sorted({GROUP, *extra}))


def _value(kept: Secret, key: str) -> str:
    try:
        return base64.b64decode(kept.data.get(key, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
