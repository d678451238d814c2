import base64
from datetime import UTC, datetime, timedelta

import pytest

from kedge.api.core_v1.secret import Secret
from kedge.client.informer import Key
from kedge.controllers.access.cluster_info import TokenExpiration, binding, ends_of, seconds_left

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def token(seconds: float | None) -> TokenExpiration:
    ends = None if seconds is None else NOW + timedelta(seconds=seconds)
    return TokenExpiration(Key("kube-system", "bootstrap-token-abcdef"), ends)


def test_the_last_token_decides_when_the_door_is_closed() -> None:
    assert seconds_left([token(5), token(60)], NOW) == 60


def test_a_token_for_ever_leaves_the_door_open() -> None:
    assert seconds_left([token(5), token(None)], NOW) is None


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("", None),
        ("2026-01-01T00:00:00Z", NOW),
        ("tomorrow", datetime.min.replace(tzinfo=UTC)),
    ],
)
def test_a_time_that_cannot_be_read_is_over(text: str, ends: datetime | None) -> None:
    data = {"expiration": base64.b64encode(text.encode()).decode()}
    assert ends_of(Secret(data=data)) == ends


def test_strangers_are_given_the_role_of_the_same_name() -> None:
    made = binding()
    assert made.roleRef.name == made.metadata.name
    assert [subject.name for subject in made.subjects] == ["system:anonymous"]
