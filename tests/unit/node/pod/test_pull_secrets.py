"""The Secrets with which a pod's images are pulled."""

from types import SimpleNamespace
from typing import Any, cast

from kedge.api.core_v1.secret import Secret
from kedge.machinery.errors import StatusError
from kedge.node.pod.pull_secrets import PullSecrets
from kedge.testing.pods import new_pod


async def test_secrets_that_are_missing_or_forbidden_are_left_out() -> None:
    present = Secret(data={".dockerconfigjson": "e30="})

    async def secret(namespace: str, name: str) -> Secret | None:
        if name == "forbidden":
            raise StatusError(403, "Forbidden", "no")
        return present if name == "present" else None

    names = ("missing", "forbidden", "present")
    pod = new_pod(spec={"imagePullSecrets": [{"name": name} for name in names]})
    sources = cast(Any, SimpleNamespace(secret=secret))
    assert await PullSecrets(sources).of(pod) == [present]
