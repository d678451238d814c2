"""Codes work once, soon, for the user who asked."""

import pytest

from kedge.apiserver.request import User
from kedge.apiserver.ui.credentials import Credentials
from kedge.apiserver.ui.sign_in_codes import (
    CODE_SECONDS,
    CODES_PER_TENANT,
    MOST_CODES,
    SignIn,
    SignInCodes,
)
from kedge.machinery.errors import StatusError
from kedge.testing.clock import FakeClock

ANNA = SignIn(User("anna"), Credentials({"authorization": "Bearer a"}, None))
BERT = SignIn(User("bert"), Credentials({"authorization": "Bearer b"}, None))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def codes(clock: FakeClock) -> SignInCodes:
    return SignInCodes(clock)


def test_a_code_is_for_the_user_who_asked_and_works_once(codes: SignInCodes) -> None:
    anna, bert = codes.issue(ANNA), codes.issue(BERT)
    assert codes.redeem(bert) is BERT
    assert codes.redeem(anna) is ANNA
    assert codes.redeem(anna) is None
    assert len(codes) == 0


async def test_an_old_code_is_void(codes: SignInCodes, clock: FakeClock) -> None:
    early, late = codes.issue(ANNA), codes.issue(BERT)
    await clock.advance(CODE_SECONDS - 1)
    assert codes.redeem(early) is ANNA
    await clock.advance(1)
    assert codes.redeem(late) is None


@pytest.mark.parametrize("wrong", ["", "x", "a" * 10_000, "\udcff"])
def test_wrong_codes_are_unknown(codes: SignInCodes, wrong: str) -> None:
    codes.issue(ANNA)
    assert codes.redeem(wrong) is None
    assert len(codes) == 1


def test_the_oldest_code_of_a_user_gives_way(codes: SignInCodes) -> None:
    other = codes.issue(BERT)
    first, *rest = [codes.issue(ANNA) for _ in range(CODES_PER_TENANT + 1)]
    assert codes.redeem(first) is None
    assert [codes.redeem(each) for each in rest] == [ANNA] * CODES_PER_TENANT
    assert codes.redeem(other) is BERT


async def test_there_is_a_bound_for_all_users(codes: SignInCodes, clock: FakeClock) -> None:
    for number in range(MOST_CODES):
        codes.issue(SignIn(User(f"user-{number}"), ANNA.credentials))
    with pytest.raises(StatusError) as refused:
        codes.issue(ANNA)
    assert refused.value.code == 429
    await clock.advance(CODE_SECONDS)
    assert codes.redeem(codes.issue(ANNA)) is ANNA


def test_service_accounts_of_a_namespace_share_a_bound(codes: SignInCodes) -> None:
    users = [User(f"system:serviceaccount:shop:{number}") for number in range(20)]
    for user in users:
        codes.issue(SignIn(user, ANNA.credentials))
    assert len(codes) == CODES_PER_TENANT
