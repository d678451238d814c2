from random import Random
from typing import Any

import pytest

from kedge.api.core_v1 import service_account
from kedge.api.core_v1.pod import pod
from kedge.api.core_v1.pod.pod import Pod
from kedge.apiserver.admission.service_account import MOUNT_PATH, ServiceAccountPlugin
from kedge.machinery.errors import StatusError
from kedge.testing.admission import admit_only_with, attempt, cache_with
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import new_pod, pod_document

DEFAULT: dict[str, Any] = {}
STRICT = {
    "metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}},
    "secrets": [{"name": "mine"}],
    "imagePullSecrets": [{"name": "pull"}],
}
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "x"}}
PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


async def plugin(**accounts: dict[str, Any]) -> ServiceAccountPlugin:
    resource = service_account.RESOURCE
    stored = [
        (
            resource,
            account
            | {"metadata": {"name": name, "namespace": "default"} | account.get("metadata", {})},
        )
        for name, account in accounts.items()
    ]
    cache = await cache_with([resource], stored)
    return ServiceAccountPlugin(cache.of(resource), FakeClock(), Random(7))


async def admitted(given: Pod, **accounts: dict[str, Any]) -> Pod:
    known = await plugin(**({"default": DEFAULT} | accounts))
    changed = await known.mutate(attempt(pod.RESOURCE, "CREATE", given))
    assert isinstance(changed, Pod)
    await known.validate(attempt(pod.RESOURCE, "CREATE", changed))
    return changed


async def refusal(given: Pod, **accounts: dict[str, Any]) -> str:
    with pytest.raises(StatusError) as refused:
        await admitted(given, **accounts)
    assert refused.value.code == 403
    prefix = 'pods "pod" is forbidden: '
    assert refused.value.message.startswith(prefix)
    return refused.value.message.removeprefix(prefix)


async def test_a_pod_acts_as_the_default_account_with_its_token() -> None:
    document = pod.RESOURCE.to_document(await admitted(new_pod()))
    spec = document["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    (volume,) = spec["volumes"]
    assert volume == {
        "name": volume["name"],
        "projected": {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {
                    "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{"key": "ca.crt", "path": "ca.crt"}],
                    }
                },
                {
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "namespace",
                                "fieldRef": {
                                    "apiVersion": "v1",
                                    "fieldPath": "metadata.namespace",
                                },
                            }
                        ]
                    }
                },
            ],
        },
    }
    assert volume["name"].startswith("kube-api-access-")
    assert len(volume["name"]) == len("kube-api-access-") + 5
    mount = {"name": volume["name"], "readOnly": True, "mountPath": MOUNT_PATH}
    assert spec["containers"][0]["volumeMounts"] == [mount]
    assert "initContainers" not in spec


async def test_init_containers_get_the_token_too() -> None:
    changed = await admitted(new_pod(spec={"initContainers": [{"name": "i", "image": "x"}]}))
    assert [m.mountPath for m in changed.spec.initContainers[0].volumeMounts] == [MOUNT_PATH]


async def test_containers_that_have_something_there_keep_it() -> None:
    mount = {"name": "vol", "mountPath": MOUNT_PATH}
    given = new_pod(container={"volumeMounts": [mount]}, volume={"emptyDir": {}})
    changed = await admitted(given)
    assert changed.spec.volumes == given.spec.volumes
    assert changed.spec.containers == given.spec.containers


async def test_a_volume_of_that_name_is_used_as_it_is() -> None:
    given = new_pod(spec={"volumes": [{"name": "kube-api-access-mine", "emptyDir": {}}]})
    changed = await admitted(given)
    assert changed.spec.volumes == given.spec.volumes
    assert changed.spec.containers[0].volumeMounts[0].name == "kube-api-access-mine"


async def test_admitting_twice_adds_nothing() -> None:
    known = await plugin(default=DEFAULT)
    once = await known.mutate(attempt(pod.RESOURCE, "CREATE", new_pod()))
    assert await known.mutate(attempt(pod.RESOURCE, "CREATE", once)) == once


@pytest.mark.parametrize(
    ("pods_word", "accounts_word", "mounted"),
    [
        (None, None, True),
        (None, False, False),
        (False, True, False),
        (True, False, True),
    ],
)
async def test_the_pods_word_on_the_token_wins_over_the_accounts(
    pods_word: bool | None, accounts_word: bool | None, mounted: bool
) -> None:
    account = {} if accounts_word is None else {"automountServiceAccountToken": accounts_word}
    given = new_pod(spec={"automountServiceAccountToken": pods_word})
    changed = await admitted(given, default=account)
    assert bool(changed.spec.volumes) is mounted


async def test_pull_secrets_come_from_the_account_if_the_pod_names_none() -> None:
    account = {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}
    given = await admitted(new_pod(), default=account)
    assert [secret.name for secret in given.spec.imagePullSecrets] == ["a", "b"]
    own = new_pod(spec={"imagePullSecrets": [{"name": "own"}]})
    kept = await admitted(own, default=account)
    assert [secret.name for secret in kept.spec.imagePullSecrets] == ["own"]


async def test_an_account_that_does_not_exist_is_refused() -> None:
    why = 'error looking up service account default/none: serviceaccount "none" not found'
    assert await refusal(new_pod(spec={"serviceAccountName": "none"})) == why


async def test_the_default_account_of_a_new_namespace_is_awaited(server: LocalServer) -> None:
    accounts = server.app.api.cache.of(service_account.RESOURCE)
    admit_only_with(server, ServiceAccountPlugin(accounts, server.clock, Random(7)))
    pending = server.start(_created(server))
    await server.clock.advance(0.3)
    assert not pending.done()
    await server.post(ACCOUNTS, {"metadata": {"name": "default"}})
    await server.clock.advance(0.1)
    await pending
    await server.get(f"{PODS}/pod")


async def _created(server: LocalServer) -> None:
    await server.post(PODS, pod_document())


async def test_nobody_waits_for_ever(server: LocalServer) -> None:
    accounts = server.app.api.cache.of(service_account.RESOURCE)
    admit_only_with(server, ServiceAccountPlugin(accounts, server.clock, Random(7)))
    pending = server.start(_refused(server))
    await server.clock.advance(1.1)
    await pending


async def _refused(server: LocalServer) -> None:
    answer = await server.call("POST", PODS, pod_document())
    assert answer.status == 403
    assert 'serviceaccount "default" not found' in answer.message


def using(**container: Any) -> Pod:
    return new_pod(container=container, spec={"serviceAccountName": "strict"})


FROM_SECRET = {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]}


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            new_pod(spec={"serviceAccountName": "strict"}, volume={"secret": {"secretName": "x"}}),
            'volume with secret.secretName="x"',
        ),
        (using(**FROM_SECRET), 'container ctr with envVar E referencing secret.secretName="x"'),
        (
            using(envFrom=[{"secretRef": {"name": "x"}}]),
            'container ctr with envFrom referencing secret.secretName="x"',
        ),
        (
            new_pod(
                spec={
                    "serviceAccountName": "strict",
                    "initContainers": [{"name": "i", "image": "x"} | FROM_SECRET],
                }
            ),
            'init container i with envVar E referencing secret.secretName="x"',
        ),
    ],
)
async def test_a_strict_account_lends_only_the_secrets_it_names(given: Pod, what: str) -> None:
    assert await refusal(given, strict=STRICT) == (
        f"{what} is not allowed because service account strict does not reference that secret"
    )


async def test_a_strict_account_lends_what_it_names() -> None:
    spec = {"serviceAccountName": "strict", "imagePullSecrets": [{"name": "pull"}]}
    await admitted(new_pod(spec=spec, volume={"secret": {"secretName": "mine"}}), strict=STRICT)
    other = spec | {"imagePullSecrets": [{"name": "pull"}, {"name": "other"}]}
    assert await refusal(new_pod(spec=other), strict=STRICT) == (
        'imagePullSecrets[1].name="other" is not allowed because service account strict does not '
        "reference that imagePullSecret"
    )


async def test_ephemeral_containers_cannot_get_round_a_strict_account() -> None:
    ephemeral = {"name": "e", "image": "x"} | FROM_SECRET
    spec = {"serviceAccountName": "strict", "ephemeralContainers": [ephemeral]}
    changed = new_pod(spec=spec)
    known = await plugin(strict=STRICT)
    tried = attempt(pod.RESOURCE, "UPDATE", changed, changed, subresource="ephemeralcontainers")
    with pytest.raises(StatusError, match="ephemeral container e with envVar E referencing"):
        await known.validate(tried)
    await known.validate(attempt(pod.RESOURCE, "UPDATE", changed, changed))


async def test_mirror_pods_stay_as_they_are() -> None:
    given = new_pod(metadata=MIRROR, spec={"nodeName": "n"})
    assert await admitted(given) is given


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        (
            {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a mirror pod may not reference secrets",
        ),
        ({"imagePullSecrets": [{"name": "s"}]}, "a mirror pod may not reference secrets"),
        (
            {
                "volumes": [
                    {
                        "name": "v",
                        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
                    }
                ]
            },
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ],
)
async def test_mirror_pods_refer_to_nothing(spec: dict[str, Any], why: str) -> None:
    assert await refusal(new_pod(metadata=MIRROR, spec={"nodeName": "n"} | spec)) == why
