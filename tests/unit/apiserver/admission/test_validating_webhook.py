"""Webhooks that may refuse what is written, over real HTTPS."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kedge.testing.local_server import LocalServer
from kedge.testing.webhook_server import (
    Asked,
    WebhookServer,
    configured,
    patching,
    webhook,
    webhook_server,
    webhooks_on,
)
from kedge.web.message import text_response

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"metadata": {"name": "m"}, "data": {"a": "1"}}


class Stage(NamedTuple):
    """A server that asks webhooks, and one webhook server."""

    server: LocalServer
    hook: WebhookServer
    notes: dict[str, str]

    async def configure(self, *webhooks: Asked, name: str = "conf") -> None:
        await self.server.post(CONFIGURATIONS, configured(name, *webhooks, sort="Validating"))


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def stage(server: LocalServer, keys: Path) -> AsyncIterator[Stage]:
    async with webhook_server(keys) as hook, webhooks_on(server) as notes:
        yield Stage(server, hook, notes)


def named(stage: Stage, path: str, **fields: object) -> Asked:
    return webhook(stage.hook, path, name=f"{path[1:]}.kedge.test", **fields)


async def test_refused_write_leaves_no_trace(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: {
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "not here"},
    }
    await stage.configure(webhook(stage.hook))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert (answer.status, answer.reason, answer.message) == (
        403,
        "Forbidden",
        'admission webhook "hook.kedge.test" denied the request: not here',
    )
    assert (await stage.server.call("GET", f"{MAPS}/m")).status == 404


async def test_all_webhooks_are_asked_at_once(stage: Stage) -> None:
    """Each answers only when the other has been asked too."""
    both = asyncio.Barrier(2)

    async def wait_for_the_other(request: Asked) -> Asked:
        async with both:
            return {"allowed": True}

    stage.hook.decisions = {"/a": wait_for_the_other, "/b": wait_for_the_other}
    await stage.configure(named(stage, "/a"), named(stage, "/b"))
    await stage.server.post(MAPS, MAP)
    assert sorted(path for path, _ in stage.hook.asked) == ["/a", "/b"]


async def test_first_refusal_in_order_is_the_one_reported(stage: Stage) -> None:
    refused = asyncio.Event()

    async def slow_no(request: Asked) -> Asked:
        await refused.wait()
        return {"allowed": False, "status": {"message": "first"}}

    def quick_no(request: Asked) -> Asked:
        refused.set()
        return {"allowed": False, "status": {"message": "second"}}

    stage.hook.decisions = {"/a": slow_no, "/b": quick_no}
    await stage.configure(named(stage, "/a"), named(stage, "/b"))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.message.endswith("denied the request: first")


async def test_slow_webhook_is_given_up_on(stage: Stage) -> None:
    async def never(request: Asked) -> Asked:
        await asyncio.Event().wait()
        raise AssertionError

    stage.hook.decisions["/"] = never
    await stage.configure(webhook(stage.hook, timeoutSeconds=1))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.status == 500
    assert answer.message == (
        'Internal error occurred: failed calling webhook "hook.kedge.test": '
        f'failed to call webhook: Post "{stage.hook.url}/?timeout=1s": context deadline exceeded'
    )


async def test_webhook_that_may_fail_is_passed_over_but_one_that_refuses_is_not(
    stage: Stage,
) -> None:
    stage.hook.decisions["/broken"] = lambda request: text_response("no", 503)
    lenient = {"failurePolicy": "Ignore"}
    await stage.configure(named(stage, "/fine"), named(stage, "/broken", **lenient))
    await stage.server.post(MAPS, MAP)
    key = "failed-open.validating.webhook.admission.k8s.io/round_0_index_1"
    assert stage.notes == {key: "broken.kedge.test"}
    stage.hook.decisions["/broken"] = lambda request: {"allowed": False}
    answer = await stage.server.call("PUT", f"{MAPS}/m", MAP | {"data": {"a": "2"}})
    assert answer.status == 400


async def test_validating_webhook_may_not_patch(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: patching({"op": "remove", "path": "/data"})
    await stage.configure(webhook(stage.hook))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.message.endswith("validating webhook may not return response.patch")


async def test_deletion_shows_what_goes_and_with_which_options(stage: Stage) -> None:
    await stage.server.post(MAPS, MAP)
    rule = {
        "operations": ["DELETE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    await stage.configure(webhook(stage.hook, rules=[rule]))
    await stage.server.delete(f"{MAPS}/m", {"gracePeriodSeconds": 3})
    request = stage.hook.requests("/")[0]
    assert (request["operation"], request["name"], request["object"]) == ("DELETE", "m", None)
    assert request["oldObject"]["data"] == {"a": "1"}
    assert request["options"] == {
        "kind": "DeleteOptions",
        "apiVersion": "meta.k8s.io/v1",
        "gracePeriodSeconds": 3,
    }


async def test_dry_run_is_refused_if_a_webhook_might_act_on_it(stage: Stage) -> None:
    stored = stage.server.app.api
    await stage.configure(webhook(stage.hook))
    # Such configurations are no longer accepted, but older servers stored them.
    kind = stored.catalog.find(
        "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"
    )
    assert kind is not None
    item = stored.cache_of(kind).get(kind.key("", "conf"))
    assert item is not None
    document = item.document()
    document["webhooks"][0]["sideEffects"] = "Some"
    await stored.put(kind, document, item, len(item.body))
    answer = await stage.server.call("POST", f"{MAPS}?dryRun=All", MAP)
    assert (answer.status, answer.message) == (
        400,
        'admission webhook "hook.kedge.test" does not support dry run',
    )
    assert stage.hook.asked == []


async def test_changed_configuration_takes_effect_at_once(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: {"allowed": False}
    await stage.server.post(MAPS, {"metadata": {"name": "before"}})
    await stage.configure(webhook(stage.hook))
    assert (await stage.server.call("POST", MAPS, MAP)).status == 400
    moved = {"clientConfig": {"url": f"{stage.hook.url}/fine", "caBundle": stage.hook.ca_bundle}}
    changed = configured("conf", webhook(stage.hook) | moved, sort="Validating")
    current = await stage.server.get(f"{CONFIGURATIONS}/conf")
    changed["metadata"] = current["metadata"]
    await stage.server.put(f"{CONFIGURATIONS}/conf", changed)
    await stage.server.post(MAPS, MAP)


async def test_status_of_a_pod_is_another_matter_than_the_pod(stage: Stage) -> None:
    def about(resources: list[str]) -> Asked:
        words = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"]}
        return {"rules": [words | {"resources": resources}]}

    await stage.configure(
        named(stage, "/pods", **about(["pods"])),
        named(stage, "/status", **about(["pods/status"])),
        named(stage, "/both", **about(["pods/*"])),
        named(stage, "/any", **about(["*/status"])),
    )
    spec = {"containers": [{"name": "c", "image": "i"}]}
    pods = "/api/v1/namespaces/default/pods"
    await stage.server.post(pods, {"metadata": {"name": "p"}, "spec": spec})
    assert sorted(path for path, _ in stage.hook.asked) == ["/both", "/pods"]
    stage.hook.asked.clear()
    await stage.server.merge(f"{pods}/p/status", {"status": {"message": "hi"}})
    assert sorted(path for path, _ in stage.hook.asked) == ["/any", "/both", "/status"]
    request = stage.hook.requests("/status")[0]
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")


async def test_namespaces_are_judged_by_their_own_labels(stage: Stage) -> None:
    rule = {
        "operations": ["*"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["namespaces"],
        "scope": "Cluster",
    }
    selector = {"matchLabels": {"team": "blue"}}
    await stage.configure(webhook(stage.hook, rules=[rule], namespaceSelector=selector))
    await stage.server.post("/api/v1/namespaces", {"metadata": {"name": "plain"}})
    labelled = {"metadata": {"name": "ours", "labels": {"team": "blue"}}}
    await stage.server.post("/api/v1/namespaces", labelled)
    (request,) = stage.hook.requests("/")
    assert (request["name"], request["namespace"]) == ("ours", "ours")


async def test_service_is_dialled_under_its_own_name(server: LocalServer, keys: Path) -> None:
    async with webhook_server(keys) as hook:
        asked: list[tuple[str, str, int]] = []

        def resolve(namespace: str, name: str, port: int) -> tuple[str, int]:
            asked.append((namespace, name, port))
            return "127.0.0.1", hook.port

        async with webhooks_on(server, resolve) as notes:
            stage = Stage(server, hook, notes)
            service = {"namespace": "default", "name": "hook", "path": "/here", "port": 8443}
            client = {"service": service, "caBundle": hook.ca_bundle}
            await stage.configure(webhook(hook, clientConfig=client))
            await server.post(MAPS, MAP)
    assert asked == [("default", "hook", 8443)]
    assert len(hook.requests("/here")) == 1
    assert hook.headers[0]["host"] == "hook.default.svc:8443"


async def test_service_without_endpoints_is_named_in_the_failure(stage: Stage) -> None:
    service = {"namespace": "default", "name": "hook"}
    client = {"service": service, "caBundle": stage.hook.ca_bundle}
    await stage.configure(webhook(stage.hook, clientConfig=client))
    failed = 'Internal error occurred: failed calling webhook "hook.kedge.test": failed to call '
    post = 'webhook: Post "https://hook.default.svc:443/?timeout=10s": '
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.message == f'{failed}{post}service "hook" not found'
    await stage.server.post(
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}]}},
    )
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.message == f'{failed}{post}no endpoints available for service "hook"'
