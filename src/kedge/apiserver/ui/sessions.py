"""Sessions: browsers that are signed in, each with a cookie and a page secret.

A request counts as one of the dashboard only if it brings both. The cookie is HttpOnly, so that no
script can read it. But cookies do not know ports: a browser also sends it to other programs on the
same host, such as one that `kubectl port-forward` leads to. The page secret is kept by the page in
the storage of its origin, which knows ports, and is sent in a header that other origins cannot set.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Final

import msgspec

from kedge.apiserver.ui.sign_in_codes import SignIn, digest
from kedge.machinery.clock import Clock
from kedge.web.connection_limits import too_many

SESSION_SECONDS: Final = 8 * 3600
"""The longest time that a browser stays signed in."""
IDLE_SECONDS: Final = 30 * 60
"""A session without a request for so long has ended."""
SESSIONS_PER_TENANT: Final = 16
"""With a further one the session that was idle longest ends."""
MOST_SESSIONS: Final = 1024
LONGEST_SECRET: Final = 64
"""Characters of a cookie or page secret. A longer one is not hashed."""


class NewSession(msgspec.Struct, frozen=True):
    """The secrets of a session, for its browser alone."""

    cookie: str
    page_secret: str


class Session(msgspec.Struct):
    """One browser that is signed in."""

    sign_in: SignIn
    page_secret: bytes
    """Its hash."""
    ends: datetime
    last_used: datetime


class Sessions:
    """The browsers that are signed in to this server. They end with it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        """By the hash of the cookie, the one that was idle longest first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, sign_in: SignIn) -> NewSession:
        """Sign a browser in; 429 if too many are."""
        self._drop_ended()
        tenant = sign_in.user.tenant
        own = [k for k, each in self._sessions.items() if each.sign_in.user.tenant == tenant]
        for key in own[: max(0, len(own) - SESSIONS_PER_TENANT + 1)]:
            del self._sessions[key]
        if len(self._sessions) >= MOST_SESSIONS:
            raise too_many("too many browsers are signed in to the dashboard")
        new, now = NewSession(token_urlsafe(32), token_urlsafe(32)), self._clock.now()
        ends = now + timedelta(seconds=SESSION_SECONDS)
        session = Session(sign_in, digest(new.page_secret), ends, now)
        self._sessions[digest(new.cookie)] = session
        return new

    def find(self, cookies: Iterable[str], page_secret: str) -> Session | None:
        """Return the session of a request, and keep it from becoming idle; None if the request has
        no session, or if the session has ended."""
        if not page_secret or len(page_secret) > LONGEST_SECRET:
            return None
        for cookie in cookies:
            key = digest(cookie[: LONGEST_SECRET + 1])
            session = self._sessions.get(key)
            if session is not None and compare_digest(session.page_secret, digest(page_secret)):
                return self._used(key, session)
        return None

    def end(self, session: Session) -> None:
        """Sign a browser out."""
        self._sessions = {k: each for k, each in self._sessions.items() if each is not session}

    def _used(self, key: bytes, session: Session) -> Session | None:
        now = self._clock.now()
        del self._sessions[key]
        if _has_ended(session, now):
            return None
        session.last_used = now
        self._sessions[key] = session
        return session

    def _drop_ended(self) -> None:
        now = self._clock.now()
        self._sessions = {k: s for k, s in self._sessions.items() if not _has_ended(s, now)}


def _has_ended(session: Session, now: datetime) -> bool:
    return now >= min(session.ends, session.last_used + timedelta(seconds=IDLE_SECONDS))
