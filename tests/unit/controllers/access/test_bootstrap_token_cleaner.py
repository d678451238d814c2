"""Secrets of bootstrap tokens go when the tokens expire; others stay."""

from typing import Any

from kedge.controllers.access.bootstrap_token_cleaner import BootstrapTokenCleaner
from kedge.testing.controllers import workshop

SECRETS = "/api/v1/namespaces/kube-system/secrets"


def token(name: str, expiration: str) -> dict[str, Any]:
    data = {"token-id": name, "expiration": expiration} if expiration else {"token-id": name}
    return {
        "metadata": {"name": f"bootstrap-token-{name}"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": data,
    }


async def test_tokens_are_deleted_when_they_expire() -> None:
    async with workshop(lambda client, _, clock: BootstrapTokenCleaner(client, clock)) as place:
        await place.create(SECRETS, token("abcde1", "2030-01-01T00:10:00Z"))
        await place.create(SECRETS, token("abcde2", ""))
        await place.create(SECRETS, token("abcde3", "2029-12-31T00:00:00Z"))
        await place.create(SECRETS, token("abcde4", "soon"))
        other = {
            "metadata": {"name": "other"},
            "stringData": {"expiration": "2020-01-01T00:00:00Z"},
        }
        await place.create(SECRETS, other)
        names = ["bootstrap-token-abcde1", "bootstrap-token-abcde2", "other"]
        assert [each["metadata"]["name"] for each in await place.below(SECRETS)] == names
        await place.pass_time(601)
        assert [each["metadata"]["name"] for each in await place.below(SECRETS)] == names[1:]
