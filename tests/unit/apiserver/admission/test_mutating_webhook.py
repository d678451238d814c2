"""Webhooks that change what is written, over real HTTPS."""

import asyncio
import base64
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kedge.apiserver.admission import mutating_webhook
from kedge.machinery import patch
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
from kedge.web.message import Response, text_response

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
MAPS = "/api/v1/namespaces/default/configmaps"
MAP = {"metadata": {"name": "m", "labels": {"app": "web"}}, "data": {"a": "1"}}

DEEP = 20
"""How often a webhook calls itself."""


class Stage(NamedTuple):
    """A server that asks webhooks, and one webhook server."""

    server: LocalServer
    hook: WebhookServer
    notes: dict[str, str]

    async def configure(self, *webhooks: Asked, name: str = "conf") -> None:
        await self.server.post(CONFIGURATIONS, configured(name, *webhooks))

    async def refused(self, body: Any = MAP, url: str = MAPS) -> tuple[int, str]:
        answer = await self.server.call("POST", url, body)
        return answer.status, answer.message


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture
async def stage(server: LocalServer, keys: Path) -> AsyncIterator[Stage]:
    async with webhook_server(keys) as hook, webhooks_on(server) as notes:
        yield Stage(server, hook, notes)


def adds(key: str, value: str) -> Asked:
    return patching({"op": "add", "path": f"/data/{key}", "value": value})


async def test_patch_of_a_webhook_is_what_gets_stored(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: adds("b", "2")
    await stage.configure(webhook(stage.hook))
    made = await stage.server.post(MAPS, MAP)
    assert made["data"] == {"a": "1", "b": "2"}
    assert (await stage.server.get(f"{MAPS}/m"))["data"] == {"a": "1", "b": "2"}


async def test_a_large_answer_is_read_and_applied_in_a_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []
    apply = patch.apply_json

    def noted(document: Any, operations: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return apply(document, operations)

    monkeypatch.setattr(mutating_webhook, "apply_json", noted)
    stage.hook.decisions["/"] = lambda request: adds("b", "x" * 50_000)
    await stage.configure(webhook(stage.hook))
    assert len((await stage.server.post(MAPS, MAP))["data"]["b"]) == 50_000
    stage.hook.decisions["/"] = lambda request: adds("b", "x")
    await stage.server.post(MAPS, {"metadata": {"name": "n"}, "data": {"a": "1"}})
    assert threads == [False, True]


async def test_webhook_is_told_who_wants_what(stage: Stage) -> None:
    await stage.configure(webhook(stage.hook, timeoutSeconds=7))
    await stage.server.post(f"{MAPS}?fieldManager=me", MAP)
    request = stage.hook.requests("/")[0]
    assert request["operation"] == "CREATE"
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert request["requestKind"] == request["kind"]
    assert (request["name"], request["namespace"], request["dryRun"]) == ("m", "default", False)
    assert request["userInfo"]["username"] == "kubernetes-admin"
    assert "system:masters" in request["userInfo"]["groups"]
    assert request["object"]["kind"] == "ConfigMap"
    assert request["object"]["data"] == {"a": "1"}
    assert request["oldObject"] is None
    assert request["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
    }
    assert stage.hook.queries == ["timeout=7s"]
    assert stage.hook.headers[0]["user-agent"] == "kube-apiserver-admission"


async def test_update_shows_the_old_object_and_patch_counts_as_update(stage: Stage) -> None:
    await stage.server.post(MAPS, MAP)
    await stage.configure(webhook(stage.hook))
    await stage.server.merge(f"{MAPS}/m", {"data": {"a": "2"}})
    request = stage.hook.requests("/")[0]
    assert request["operation"] == "UPDATE"
    assert request["object"]["data"] == {"a": "2"}
    assert request["oldObject"]["data"] == {"a": "1"}
    assert request["options"]["kind"] == "UpdateOptions"


async def test_patched_object_is_fitted_and_defaulted_again(stage: Stage) -> None:
    port: Asked = {"port": 80, "nonsense": True}
    stage.hook.decisions["/"] = lambda request: patching(
        {"op": "add", "path": "/spec/ports/-", "value": port}
    )
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["services"]}
    await stage.configure(webhook(stage.hook, rules=[rule]))
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "a", "port": 1}]}}
    status, message = await stage.refused(service, "/api/v1/namespaces/default/services")
    assert (status, "spec.ports[1].name: Required value" in message) == (422, True), message
    port["name"] = "b"
    made = await stage.server.post("/api/v1/namespaces/default/services", service)
    assert made["spec"]["ports"][1] == {
        "name": "b",
        "port": 80,
        "protocol": "TCP",
        "targetPort": 80,
    }


async def test_only_the_server_sets_what_only_the_server_sets(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: patching(
        {"op": "replace", "path": "/metadata/uid", "value": "mine"},
        {"op": "add", "path": "/metadata/deletionTimestamp", "value": "2020-01-01T00:00:00Z"},
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
        {"op": "add", "path": "/status", "value": {"phase": "Running"}},
    )
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["*"], "resources": ["pods"]}
    await stage.configure(webhook(stage.hook, rules=[rule]))
    pod = {
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    made = await stage.server.post("/api/v1/namespaces/default/pods", pod)
    assert made["metadata"]["labels"] == {"a": "b", "x": "y"}
    assert made["metadata"]["uid"] != "mine"
    assert "deletionTimestamp" not in made["metadata"]
    assert made["status"]["phase"] == "Pending"


async def test_object_cannot_be_moved_to_another_namespace(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: patching(
        {"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}
    )
    await stage.configure(webhook(stage.hook))
    status, message = await stage.refused()
    assert (status, message) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )


async def test_webhooks_are_asked_in_the_order_of_their_configurations_names(
    stage: Stage,
) -> None:
    stage.hook.decisions["/1"] = lambda request: adds("b", "one")
    stage.hook.decisions["/2"] = lambda request: adds("c", request["object"]["data"]["b"])
    await stage.configure(webhook(stage.hook, "/2"), name="second")
    await stage.configure(webhook(stage.hook, "/1"), name="first")
    made = await stage.server.post(MAPS, MAP)
    assert made["data"] == {"a": "1", "b": "one", "c": "one"}
    assert [path for path, _ in stage.hook.asked] == ["/1", "/2"]


async def test_earlier_webhook_is_asked_again_only_if_it_wants_to_be(stage: Stage) -> None:
    stage.hook.decisions["/3"] = lambda request: adds("late", "yes")
    await stage.configure(
        webhook(stage.hook, "/1", name="a.kedge.test", reinvocationPolicy="IfNeeded"),
        webhook(stage.hook, "/2", name="b.kedge.test"),
        webhook(stage.hook, "/3", name="c.kedge.test", reinvocationPolicy="IfNeeded"),
    )
    await stage.server.post(MAPS, MAP)
    assert [path for path, _ in stage.hook.asked] == ["/1", "/2", "/3", "/1"]
    assert stage.hook.requests("/1")[1]["object"]["data"] == {"a": "1", "late": "yes"}


async def test_webhooks_that_always_change_something_do_not_loop(stage: Stage) -> None:
    def count(request: Asked) -> Asked:
        seen = int(request["object"]["data"].get("n", "0"))
        return adds("n", str(seen + 1))

    stage.hook.decisions = {"/1": count, "/2": count}
    again = {"reinvocationPolicy": "IfNeeded"}
    await stage.configure(
        webhook(stage.hook, "/1", name="a.kedge.test", **again),
        webhook(stage.hook, "/2", name="b.kedge.test", **again),
    )
    made = await stage.server.post(MAPS, MAP)
    # Both in the first round; in the second the first, and with its change the second too.
    assert [path for path, _ in stage.hook.asked] == ["/1", "/2", "/1", "/2"]
    assert made["data"]["n"] == "4"


async def test_webhook_that_writes_through_the_server_ends_with_its_own_timeout(
    stage: Stage,
) -> None:
    async def write_another(request: Asked) -> Asked:
        if len(stage.hook.asked) > DEEP:
            # Deeper it only takes more connections: the deepest waits.
            await asyncio.get_running_loop().create_future()
        another = {"metadata": {"generateName": "loop-"}}
        await stage.server.call("POST", MAPS, another)
        return {"allowed": True}

    stage.hook.decisions["/"] = write_another
    await stage.configure(webhook(stage.hook, timeoutSeconds=1))
    status, message = await stage.refused()
    assert status == 500
    assert "context deadline exceeded" in message


async def test_refusal_carries_the_webhooks_status(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: {
        "allowed": False,
        "status": {
            "code": 418,
            "reason": "Teapot",
            "message": "no coffee",
            "details": {"uid": "u"},
        },
        "warnings": ["think again"],
    }
    await stage.configure(webhook(stage.hook))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.status == 418
    assert answer.reason == "Teapot"
    assert answer.message == ('admission webhook "hook.kedge.test" denied the request: no coffee')
    assert answer.document["details"] == {"uid": "u"}
    assert (await stage.server.call("GET", f"{MAPS}/m")).status == 404


async def test_refusal_without_a_word_is_a_bad_request(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: {"allowed": False, "status": {"code": 200}}
    await stage.configure(webhook(stage.hook))
    assert await stage.refused() == (
        400,
        'admission webhook "hook.kedge.test" denied the request without explanation',
    )


async def test_warnings_reach_the_writer(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: {"allowed": True, "warnings": ["mind the gap"]}
    await stage.configure(webhook(stage.hook))
    answer = await stage.server.call("POST", MAPS, MAP)
    assert answer.warnings == ['299 - "mind the gap"']


FAILED = 'Internal error occurred: failed calling webhook "hook.kedge.test": '


async def test_failing_webhook_fails_the_request_or_is_passed_over(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: text_response("boom", 500)
    await stage.configure(webhook(stage.hook), name="strict")
    assert await stage.refused() == (
        500,
        f"{FAILED}failed to call webhook: an error on the server "
        '("boom") has prevented the request from succeeding',
    )
    await stage.server.delete(f"{CONFIGURATIONS}/strict")
    await stage.configure(webhook(stage.hook, failurePolicy="Ignore"), name="lenient")
    await stage.server.post(MAPS, MAP)
    key = "failed-open.mutation.webhook.admission.k8s.io/round_0_index_0"
    assert stage.notes[key] == "hook.kedge.test"


async def test_audit_learns_what_webhooks_did(stage: Stage) -> None:
    stage.hook.decisions["/"] = lambda request: adds("b", "2") | {"auditAnnotations": {"why": "so"}}
    await stage.configure(webhook(stage.hook))
    await stage.server.post(MAPS, MAP)
    assert stage.notes["hook.kedge.test/why"] == "so"
    assert stage.notes["mutation.webhook.admission.k8s.io/round_0_index_0"] == (
        '{"configuration":"conf","webhook":"hook.kedge.test","mutated":true}'
    )


def review(response: Any, **head: str) -> Response:
    written = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"} | head
    return Response(200, msgspec.json.encode(written | {"response": response}))


@pytest.mark.parametrize(
    ("decided", "why"),
    [
        (review(None), "received invalid webhook response: webhook response was absent"),
        (
            review({"uid": "other", "allowed": True}),
            "received invalid webhook response: expected response.uid=",
        ),
        (
            {"allowed": True, "patchType": "JSONPatch"},
            "received invalid webhook response: "
            "webhook returned response.patchType but not response.patch",
        ),
        (
            {"allowed": True, "patch": "W10="},
            "received invalid webhook response: "
            "webhook returned response.patch but not response.patchType",
        ),
        (
            {"allowed": True, "patch": "e30=", "patchType": "JSONPatch"},
            "received undecodable patch in webhook response: ",
        ),
        (
            {"allowed": True, "patch": "not base64!", "patchType": "JSONPatch"},
            "failed to call webhook: illegal base64 data in response.patch",
        ),
        (
            {
                "allowed": True,
                "patch": base64.b64encode(b'[{"op":"x"}]').decode(),
                "patchType": "X",
            },
            'unsupported patch type "X"',
        ),
        (text_response("hello"), "failed to call webhook: couldn't get version/kind; json parse"),
        ({"allowed": "yes"}, "failed to call webhook: json: Expected `bool"),
        (Response(200, b""), "failed to call webhook: 0-length response with status code: 200"),
        (text_response("gone", 404), "failed to call webhook: the server could not find the"),
        (
            Response(302, b"", headers=[("Location", "https://elsewhere")]),
            "failed to call webhook: the server responded with the status code 302 but did not",
        ),
        (Response(200, b"x" * (7 << 20)), "failed to call webhook: the answer is longer than"),
    ],
)
async def test_answers_that_make_no_sense_count_as_failures(
    stage: Stage, decided: Any, why: str
) -> None:
    stage.hook.decisions["/"] = lambda request: decided
    await stage.configure(webhook(stage.hook))
    status, message = await stage.refused()
    assert status == 500
    assert message.startswith(FAILED + why)


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        (
            {"op": "remove", "path": "/data/none"},
            "Internal error occurred: error in remove for path: '/data/none': ",
        ),
        (
            {"op": "add", "path": "/data", "value": 7},
            "Internal error occurred: ConfigMap in version",
        ),
        (
            {"op": "replace", "path": "/kind", "value": "Secret"},
            "Internal error occurred: Secret in version",
        ),
    ],
)
async def test_patches_that_do_not_fit_fail_even_if_failures_are_ignored(
    stage: Stage, operation: Any, why: str
) -> None:
    stage.hook.decisions["/"] = lambda request: patching(operation)
    await stage.configure(webhook(stage.hook, failurePolicy="Ignore"))
    status, message = await stage.refused()
    assert status == 500
    assert message.startswith(why)


async def test_dry_run_is_shown_only_to_webhooks_without_side_effects(stage: Stage) -> None:
    await stage.configure(webhook(stage.hook, sideEffects="NoneOnDryRun"))
    await stage.server.post(f"{MAPS}?dryRun=All", MAP)
    request = stage.hook.requests("/")[0]
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


async def test_selectors_and_conditions_decide_who_is_asked(stage: Stage) -> None:
    def only(path: str, **fields: Any) -> Asked:
        return webhook(stage.hook, path, name=f"{path[1:]}.kedge.test", **fields)

    condition = "has(object.data) && object.data.a == '1' && request.operation == 'CREATE'"
    await stage.configure(
        only("/label", objectSelector={"matchLabels": {"app": "web"}}),
        only("/nolabel", objectSelector={"matchLabels": {"app": "db"}}),
        only("/ns", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "default"}}),
        only("/nons", namespaceSelector={"matchLabels": {"team": "x"}}),
        only("/cond", matchConditions=[{"name": "c", "expression": condition}]),
        only("/nocond", matchConditions=[{"name": "c", "expression": "object.data.a == '2'"}]),
    )
    await stage.server.post(MAPS, MAP)
    assert [path for path, _ in stage.hook.asked] == ["/label", "/ns", "/cond"]


async def test_condition_without_an_answer_refuses_or_passes_over(stage: Stage) -> None:
    condition = [{"name": "c", "expression": "object.data.none == '2'"}]
    await stage.configure(webhook(stage.hook, matchConditions=condition), name="strict")
    assert await stage.refused() == (
        403,
        "configmaps \"m\" is forbidden: expression 'object.data.none == '2'' "
        "resulted in error: no such key: none",
    )
    await stage.server.delete(f"{CONFIGURATIONS}/strict")
    lenient = webhook(stage.hook, matchConditions=condition, failurePolicy="Ignore")
    await stage.configure(lenient, name="lenient")
    await stage.server.post(MAPS, MAP)
    assert stage.hook.asked == []


async def test_configurations_of_webhooks_are_never_shown_to_webhooks(stage: Stage) -> None:
    everything = {
        "operations": ["*"],
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "resources": ["*/*"],
    }
    stage.hook.decisions["/"] = lambda request: {"allowed": False}
    await stage.configure(webhook(stage.hook, rules=[everything]))
    assert (await stage.refused())[0] == 400
    await stage.server.delete(f"{CONFIGURATIONS}/conf")
    await stage.server.post(MAPS, MAP)


async def test_webhook_for_one_version_sees_writes_to_another_in_its_own(stage: Stage) -> None:
    def scale_up(request: Asked) -> Asked:
        assert request["object"]["apiVersion"] == "autoscaling/v2"
        assert request["requestKind"]["version"] == "v1"
        assert request["object"]["spec"]["metrics"][0]["resource"]["name"] == "cpu"
        return patching({"op": "replace", "path": "/spec/maxReplicas", "value": 9})

    stage.hook.decisions["/"] = scale_up
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v2"],
        "resources": ["horizontalpodautoscalers"],
    }
    exact = webhook(stage.hook, "/exact", name="e.kedge.test", rules=[rule], matchPolicy="Exact")
    await stage.configure(webhook(stage.hook, rules=[rule]), exact)
    made = await stage.server.post(
        "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
        {
            "metadata": {"name": "h"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                "maxReplicas": 3,
                "targetCPUUtilizationPercentage": 50,
            },
        },
    )
    assert made["apiVersion"] == "autoscaling/v1"
    assert made["spec"]["maxReplicas"] == 9
    assert made["spec"]["targetCPUUtilizationPercentage"] == 50
    assert stage.hook.requests("/exact") == []


async def test_the_annotation_lists_defaults_from_before_and_after_a_webhook(keys: Path) -> None:
    async with (
        LocalServer.running(admission=["LimitRanger"]) as server,
        webhook_server(keys) as hook,
        webhooks_on(server) as notes,
    ):
        await check_annotation(Stage(server, hook, notes))


async def check_annotation(stage: Stage) -> None:
    item = {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [item]}}
    await stage.server.post("/api/v1/namespaces/default/limitranges", limits)
    side = {"name": "side", "image": "i"}
    add = [{"op": "add", "path": "/spec/containers/-", "value": side}]
    stage.hook.decisions["/1"] = lambda request: patching(*add)
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    await stage.configure(webhook(stage.hook, "/1", rules=[rule | {"resources": ["pods"]}]))
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    made = await stage.server.post("/api/v1/namespaces/default/pods", pod)
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container main; cpu limit for container main; "
        "cpu request for container side; cpu limit for container side"
    )
