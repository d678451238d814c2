"""SignInCodes: codes that are good for one sign-in, soon, as the user who asked for them."""

from datetime import datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final, NamedTuple

from kedge.apiserver.request import User
from kedge.apiserver.ui.credentials import Credentials
from kedge.machinery.clock import Clock
from kedge.web.connection_limits import too_many

CODE_SECONDS: Final = 60
"""How long a code can be used: as long as a browser takes to start."""
CODES_PER_TENANT: Final = 4
"""With a further one the oldest is void."""
MOST_CODES: Final = 256
LONGEST_CODE: Final = 64
"""Characters. A longer one is not hashed."""


class SignIn(NamedTuple):
    """A user and what it proved its identity with."""

    user: User
    credentials: Credentials


class PendingCode(NamedTuple):
    """A code that was not used yet."""

    sign_in: SignIn
    expires: datetime


class SignInCodes:
    """The codes that can be used now. Only their hashes are kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[bytes, PendingCode] = {}
        """By hash, oldest first."""

    def __len__(self) -> int:
        return len(self._pending)

    def issue(self, sign_in: SignIn) -> str:
        """Return a new code; 429 if too many wait to be used."""
        self._drop_expired()
        own = [key for key, each in self._pending.items() if _tenant(each) == sign_in.user.tenant]
        for key in own[: max(0, len(own) - CODES_PER_TENANT + 1)]:
            del self._pending[key]
        if len(self._pending) >= MOST_CODES:
            raise too_many("too many sign-in codes wait to be used")
        code = token_urlsafe(32)
        expires = self._clock.now() + timedelta(seconds=CODE_SECONDS)
        self._pending[digest(code)] = PendingCode(sign_in, expires)
        return code

    def redeem(self, code: str) -> SignIn | None:
        """Return who a code was made for, and void it; None if it is unknown, used or too old."""
        if len(code) > LONGEST_CODE:
            return None
        self._drop_expired()
        found = self._pending.pop(digest(code), None)
        return None if found is None else found.sign_in

    def _drop_expired(self) -> None:
        now = self._clock.now()
        self._pending = {key: each for key, each in self._pending.items() if each.expires > now}


def digest(secret: str) -> bytes:
    """Return the hash of a secret. Looking it up takes the same time for every wrong secret."""
    return sha256(secret.encode("utf-8", "replace")).digest()


def _tenant(pending: PendingCode) -> str:
    return pending.sign_in.user.tenant
