"""Sessions need both secrets, and end in time."""

import pytest

from kedge.apiserver.request import User
from kedge.apiserver.ui.credentials import Credentials
from kedge.apiserver.ui.sessions import (
    IDLE_SECONDS,
    MOST_SESSIONS,
    SESSION_SECONDS,
    SESSIONS_PER_TENANT,
    NewSession,
    Sessions,
)
from kedge.apiserver.ui.sign_in_codes import SignIn
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock

ANNA = SignIn(User("anna"), Credentials({}, None))
BERT = SignIn(User("bert"), Credentials({}, None))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sessions(clock: FakeClock) -> Sessions:
    return Sessions(clock)


def user(sessions: Sessions, new: NewSession) -> str:
    found = sessions.find([new.cookie], new.page_secret)
    return "" if found is None else found.sign_in.user.name


def test_cookie_and_page_secret_are_both_needed(sessions: Sessions) -> None:
    anna, bert = sessions.begin(ANNA), sessions.begin(BERT)
    assert user(sessions, anna) == "anna"
    assert user(sessions, NewSession(anna.cookie, bert.page_secret)) == ""
    assert user(sessions, NewSession(bert.cookie, anna.page_secret)) == ""
    assert sessions.find([], anna.page_secret) is None
    assert sessions.find([anna.cookie], "") is None
    assert sessions.find(["x" * 5000], "y" * 5000) is None


def test_an_outdated_cookie_beside_the_right_one_does_no_harm(sessions: Sessions) -> None:
    new = sessions.begin(ANNA)
    assert sessions.find(["outdated", new.cookie], new.page_secret) is not None


async def test_a_session_in_use_ends_after_eight_hours(
    sessions: Sessions, clock: FakeClock
) -> None:
    new = sessions.begin(ANNA)
    for _ in range(SESSION_SECONDS // 600 - 1):
        await clock.advance(600)
        assert user(sessions, new) == "anna"
    await clock.advance(600)
    assert user(sessions, new) == ""
    assert len(sessions) == 0


async def test_an_idle_session_ends(sessions: Sessions, clock: FakeClock) -> None:
    new = sessions.begin(ANNA)
    await clock.advance(IDLE_SECONDS - 1)
    assert user(sessions, new) == "anna"
    await clock.advance(IDLE_SECONDS)
    assert user(sessions, new) == ""


def test_signing_out_ends_one_session(sessions: Sessions) -> None:
    here, there = sessions.begin(ANNA), sessions.begin(ANNA)
    found = sessions.find([here.cookie], here.page_secret)
    assert found is not None
    sessions.end(found)
    assert user(sessions, here) == ""
    assert user(sessions, there) == "anna"


def test_the_session_that_was_idle_longest_gives_way(sessions: Sessions) -> None:
    first, second = sessions.begin(ANNA), sessions.begin(ANNA)
    other = sessions.begin(BERT)
    for _ in range(SESSIONS_PER_TENANT - 2):
        sessions.begin(ANNA)
    assert user(sessions, first) == "anna"
    sessions.begin(ANNA)
    assert user(sessions, first) == "anna"
    assert user(sessions, second) == ""
    assert user(sessions, other) == "bert"


async def test_there_is_a_bound_for_all_users(sessions: Sessions, clock: FakeClock) -> None:
    for number in range(MOST_SESSIONS):
        sessions.begin(SignIn(User(f"user-{number}"), ANNA.credentials))
    with pytest.raises(StatusError) as refused:
        sessions.begin(ANNA)
    assert refused.value.code == 429
    await clock.advance(IDLE_SECONDS)
    assert user(sessions, sessions.begin(ANNA)) == "anna"
