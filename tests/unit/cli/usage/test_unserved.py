import pytest

from kedge.cli.failure import Failure
from kedge.cli.usage.unserved import is_unserved, of_kedge
from kedge.client.client import error_of
from kedge.machinery.errors import StatusError, not_found

NO_GROUP = error_of(404, b"404 page not found\n")


async def refused(error: StatusError) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "unserved"),
    [
        (NO_GROUP, True),
        (StatusError(404, "NotFound", "the server could not find the requested resource"), True),
        (not_found("", "pods", "web"), False),
        (StatusError(403, "Forbidden", "no"), False),
    ],
)
def test_an_api_that_is_not_served_differs_from_an_object_that_is_not_there(
    error: StatusError, unserved: bool
) -> None:
    assert is_unserved(error) == unserved


async def test_a_server_without_windows_is_told_apart_from_other_refusals() -> None:
    with pytest.raises(Failure, match="no usage in windows, because it is not kedge's"):
        await of_kedge(refused(NO_GROUP))
    with pytest.raises(StatusError, match="not found"):
        await of_kedge(refused(not_found("", "pods", "web")))
