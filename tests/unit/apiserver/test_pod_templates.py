"""Pods of one template: each is what a server without templates would have made of it."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kedge.apiserver.config import UPSTREAM_ADMISSION
from kedge.apiserver.pod_templates import LONGEST_BODY
from kedge.machinery import names
from kedge.testing.local_server import JSON, LocalAnswer, LocalServer

NAMESPACES = "/api/v1/namespaces"
HOME = f"{NAMESPACES}/default"
PODS = f"{HOME}/pods"
POLICIES = "/apis/admissionregistration.k8s.io/v1"
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "web",
    "uid": "7",
    "controller": True,
}
PLAIN: dict[str, Any] = {"containers": [{"name": "main", "image": "nginx:1"}]}
BOUNDED: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "image": "nginx:1",
            "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m", "memory": "64Mi"}},
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        }
    ],
    "restartPolicy": "Never",
    "nodeSelector": {"disk": "ssd"},
}


@asynccontextmanager
async def cluster() -> AsyncIterator[LocalServer]:
    async with LocalServer.running(admission=UPSTREAM_ADMISSION) as server:
        account = {"metadata": {"name": "default"}}
        assert (await server.call("POST", f"{HOME}/serviceaccounts", account)).status == 201
        yield server


@pytest.fixture
async def server() -> AsyncIterator[LocalServer]:
    async with cluster() as running:
        yield running


def pod(name: str = "", spec: Mapping[str, Any] = PLAIN, **meta: Any) -> dict[str, Any]:
    named = {"name": name} if name else {"generateName": "web-"}
    return {"metadata": {**named, **meta}, "spec": spec}


async def posted(server: LocalServer, body: object, agent: str = "controller") -> LocalAnswer:
    await server.clock.advance(1)
    return await server.call("POST", PODS, body, headers={"user-agent": agent})


def token_volume(answer: LocalAnswer) -> str:
    """The name of the token's volume: pods of one template have the same."""
    name: str = answer.document["spec"]["volumes"][-1]["name"]
    return name


def comparable(answer: LocalAnswer) -> tuple[int, object, Sequence[str]]:
    """An answer without what differs from pod to pod."""
    document = answer.document
    if answer.status != 201:
        return answer.status, re.sub(r"web-\w+", "NAME", answer.text), answer.warnings
    meta = document["metadata"]
    own, time = meta["name"], meta["creationTimestamp"]
    for each in ("name", "uid", "resourceVersion", "creationTimestamp"):
        assert meta.pop(each)
    for owner in meta["managedFields"]:
        assert owner.pop("time")
        assert owner.pop("manager")
    volumes = [each["name"] for each in document["spec"].get("volumes", [])]
    text = msgspec.json.encode(document).decode()
    for number, volume in enumerate(volumes):
        text = text.replace(volume, f"volume-{number}")
    return 201, text.replace(own, "NAME").replace(time, "TIME"), answer.warnings


async def check_alike(server: LocalServer, numbers: "count[int]", body: dict[str, Any]) -> None:
    """Post a pod as one of a template, and as the first of another one: the results are equal."""
    number = next(numbers)
    of_template = await posted(server, body)
    first = await posted(server, renamed(body, number), f"client-{number}")
    assert comparable(of_template) == comparable(first)


def renamed(body: dict[str, Any], number: int) -> dict[str, Any]:
    meta = body["metadata"]
    name = {"name": f"{meta['name']}-{number}"} if "name" in meta else {}
    return body | {"metadata": meta | name}


BODIES = {
    "generated": pod(labels={"app": "web"}, ownerReferences=[OWNER]),
    "bounded": pod(spec=BOUNDED, annotations={"a": "b"}),
    "finalizer": pod(finalizers=["example.com/wait"]),
    "with a warning": pod(spec={**PLAIN, "serviceAccount": "default"}),
    "unknown field": pod(spec={**PLAIN, "colour": "red"}),
    "gated": pod(spec={**PLAIN, "schedulingGates": [{"name": "example.com/gate"}]}),
    "invalid": pod(spec={**PLAIN, "restartPolicy": "Perhaps"}),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_pod_of_a_template_is_what_it_would_be_alone(
    server: LocalServer, body: dict[str, Any]
) -> None:
    numbers = count()
    for _ in range(4):
        await check_alike(server, numbers, body)


async def test_names_uids_and_times_are_those_of_each_pod(server: LocalServer) -> None:
    answers = [await posted(server, pod(f"web-{number}")) for number in range(4)]
    assert len({token_volume(each) for each in answers[1:]}) == 1
    metas = [each.document["metadata"] for each in answers]
    assert [meta["name"] for meta in metas] == ["web-0", "web-1", "web-2", "web-3"]
    for field in ("uid", "resourceVersion", "creationTimestamp"):
        assert len({meta[field] for meta in metas}) == 4
    assert all(meta["managedFields"][0]["time"] == meta["creationTimestamp"] for meta in metas)
    stored = await server.call("GET", f"{PODS}/web-3")
    assert stored.document == answers[3].document


async def test_another_user_agent_namespace_or_option_is_another_template(
    server: LocalServer,
) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}"))
    other = await posted(server, pod("web-a"), "kubectl/v1.36.4")
    assert other.document["metadata"]["managedFields"][0]["manager"] == "kubectl"
    named = await server.call("POST", f"{PODS}?fieldManager=me", pod("web-b"))
    assert named.document["metadata"]["managedFields"][0]["manager"] == "me"
    assert (await server.call("POST", f"{NAMESPACES}/none/pods", pod("web-c"))).status == 404


async def test_a_dry_run_stores_nothing(server: LocalServer) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}"))
    answer = await server.call("POST", f"{PODS}?dryRun=All", pod("web-dry"))
    assert answer.status == 201
    assert (await server.call("GET", f"{PODS}/web-dry")).status == 404


async def test_a_name_that_is_taken_is_a_conflict(server: LocalServer) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}"))
    answer = await posted(server, pod("web-1"))
    assert (answer.status, answer.message) == (409, 'pods "web-1" already exists')


async def test_a_generated_name_that_is_taken_is_generated_again(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = iter(["web-a", "volume", "web-b", "volume-b", "web-a", "web-b", "web-c"])
    monkeypatch.setattr(names, "generate_name", lambda prefix, random: next(made))
    answers = [await posted(server, pod()) for _ in range(3)]
    assert [each.document["metadata"]["name"] for each in answers] == ["web-a", "web-b", "web-c"]


@pytest.mark.parametrize("name", ["Wrong", "a.b", "x" * 64, "x" * 254, "-"])
async def test_other_names_are_judged_as_always(server: LocalServer, name: str) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}"))
    answer = await posted(server, pod(name))
    await server.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    first = await posted(server, pod(name), "somebody")
    assert comparable(answer) == comparable(first)
    assert answer.message == first.message


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata":[1]}',
        b'{"metadata":"x"}',
        b'{"metadata":{"name":7}}',
        b'{"metadata":{"name":null}}',
        b'{"metadata":null}',
        b"[]",
        b"null",
        b"{",
        b'{"metadata":{"name":"a","name":"b"}}',
    ],
)
async def test_a_malformed_pod_is_refused_each_time(server: LocalServer, body: bytes) -> None:
    answers = [await posted(server, body) for _ in range(3)]
    assert {each.status for each in answers} <= {400, 422}
    assert len({each.text for each in answers}) == 1


async def test_a_key_that_occurs_twice_is_warned_about_each_time(server: LocalServer) -> None:
    text = msgspec.json.encode(pod(labels={"a": "b"})).replace(b'"a":"b"', b'"a":"b","a":"b"')
    for _ in range(3):
        answer = await server.call("POST", PODS, text, content_type=JSON)
        assert [each for each in answer.warnings if "duplicate field" in each]


async def test_long_bodies_take_the_usual_way(server: LocalServer) -> None:
    long = pod(annotations={"text": "x" * LONGEST_BODY})
    answers = [await posted(server, long) for _ in range(3)]
    assert len({token_volume(each) for each in answers}) == 3


# What admission looks at.


async def no_change(server: LocalServer) -> None:
    pass


async def limit_range(server: LocalServer) -> None:
    item = {"type": "Container", "default": {"cpu": "300m"}, "max": {"cpu": "500m"}}
    await made(server, f"{HOME}/limitranges", "limits", spec={"limits": [item]})


async def smaller_limits(server: LocalServer) -> None:
    item = {"type": "Container", "max": {"cpu": "50m"}}
    await made(server, f"{HOME}/limitranges", "small", spec={"limits": [item]})


async def selective_limits(server: LocalServer) -> None:
    item = {"type": "Pod", "max": {"cpu": "1"}, "selector": {"name": "web-a"}}
    await made(server, f"{HOME}/limitranges", "selective", spec={"limits": [item]})


async def no_limits(server: LocalServer) -> None:
    await server.call("DELETE", f"{HOME}/limitranges")


async def strict_namespace(server: LocalServer) -> None:
    await labelled(server, {"pod-security.kubernetes.io/enforce": "restricted"})


async def warning_namespace(server: LocalServer) -> None:
    labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("warn", "audit")}
    await labelled(server, labels | {"pod-security.kubernetes.io/enforce": None})


async def labelled(server: LocalServer, labels: Mapping[str, str | None]) -> None:
    body = {"metadata": {"labels": labels}}
    await server.call("PATCH", HOME, body, content_type="application/merge-patch+json")


async def no_token(server: LocalServer) -> None:
    body = {"automountServiceAccountToken": False}
    await server.call(
        "PATCH",
        f"{HOME}/serviceaccounts/default",
        body,
        content_type="application/merge-patch+json",
    )


async def no_account(server: LocalServer) -> None:
    await server.call("DELETE", f"{HOME}/serviceaccounts/default")
    await made(server, f"{HOME}/serviceaccounts", "default", imagePullSecrets=[{"name": "key"}])


async def default_priority(server: LocalServer) -> None:
    place = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await server.call("DELETE", f"{place}/usual")  # there can be one only
    await made(server, place, "usual", value=7, globalDefault=True)


async def policy(server: LocalServer) -> None:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "!has(object.spec.nodeSelector)"}],
    }
    await made(server, f"{POLICIES}/validatingadmissionpolicies", "bare", spec=spec)
    binding = {"policyName": "bare", "validationActions": ["Deny"]}
    await made(server, f"{POLICIES}/validatingadmissionpolicybindings", "bare", spec=binding)


async def no_policy(server: LocalServer) -> None:
    await server.call("DELETE", f"{POLICIES}/validatingadmissionpolicybindings/bare")


async def made(server: LocalServer, place: str, name: str, **content: Any) -> None:
    answer = await server.call("POST", place, {"metadata": {"name": name}, **content})
    assert answer.status in (201, 409), answer.text


CHANGES = [
    no_change,
    limit_range,
    smaller_limits,
    selective_limits,
    no_limits,
    strict_namespace,
    warning_namespace,
    no_token,
    no_account,
    default_priority,
    policy,
    no_policy,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_a_change_that_admission_looks_at_concerns_the_next_pod(
    server: LocalServer, change: Any
) -> None:
    numbers = count()
    for body in (BODIES["generated"], BODIES["bounded"]):
        for _ in range(3):
            await posted(server, body)
    await change(server)
    for _ in range(3):
        for body in (BODIES["generated"], BODIES["bounded"]):
            await check_alike(server, numbers, body)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(CHANGES), max_size=8), st.sampled_from(["generated", "bounded"]))
async def test_pods_follow_all_changes_in_any_order(changes: list[Any], body: str) -> None:
    numbers = count()
    async with cluster() as server:
        for change in changes:
            await change(server)
            for _ in range(3):
                await check_alike(server, numbers, BODIES[body])


# Texts that nobody looks at.

TEXTS = ["", "x", "y", "z", 'a "b" \\ \n ü', "$(A)", "$(A) more", "no label!", "1", 7, None]
SPREAD = {
    "topologyKey": "zone",
    "maxSkew": 1,
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": ["version"],
}


PLACES = [
    ("metadata", "labels", "app"),
    ("metadata", "labels", "version"),
    ("metadata", "annotations", "example.com/a"),
    ("metadata", "annotations", "container.apparmor.security.beta.kubernetes.io/main"),
    *(
        ("spec", each, 0, *place)
        for each in ("containers", "initContainers")
        for place in (("command", 0), ("args", 0), ("args", 1))
    ),
    *(("spec", "containers", 0, "env", number, "value") for number in range(3)),
]


def with_texts_in_places(given: list[tuple[tuple[str | int, ...], Any]]) -> dict[str, Any]:
    def container(name: str) -> dict[str, Any]:
        env = [{"name": each, "value": "x"} for each in ("A", "B", "A")]
        words = {"command": ["run"], "args": ["a", "b"]}
        return {"name": name, "image": "nginx:1", "env": env, **words}

    lists = {"containers": [container("main")], "initContainers": [container("init")]}
    marks = {"example.com/a": "x"}
    made_: Any = pod(spec=lists, labels={"app": "web", "version": "1"}, annotations=marks)
    for place, text in given:
        *steps, last = place
        node = made_
        for step in steps:
            node = node[step]
        node[last] = text
    return dict(made_)


@settings(max_examples=50, deadline=None)
@given(
    st.booleans(),
    st.lists(
        st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(TEXTS)), max_size=2),
        max_size=10,
    ),
)
@example(spread=False, bodies=[[(("spec", "containers", 0, "env", 2, "value"), "$(A) more")]])
@example(spread=False, bodies=[[(("spec", "containers", 0, "env", 1, "value"), "")]])
@example(spread=False, bodies=[[(PLACES[3], "runtime/default")], [(PLACES[3], "unknown")]] * 3)
async def test_pods_that_differ_in_texts_are_what_they_would_be_alone(
    spread: bool, bodies: list[list[tuple[tuple[str | int, ...], Any]]]
) -> None:
    numbers = count()
    async with cluster() as server:
        for given in ([], [], [], *bodies):
            body = with_texts_in_places(given)
            if spread:
                body["spec"]["topologySpreadConstraints"] = [SPREAD]
            await check_alike(server, numbers, body)


async def test_pods_that_differ_in_texts_are_of_one_template(server: LocalServer) -> None:
    def body(number: int) -> dict[str, Any]:
        env = [{"name": "N", "value": f"{number}"}]
        main = {"name": "main", "image": "nginx:1", "args": [f"{number}"], "env": env}
        meta = {"labels": {"run": f"{number}"}, "annotations": {"run": f"{number}"}}
        return pod(f"web-{number}", spec={"containers": [main]}, **meta)

    answers = [await posted(server, body(number)) for number in range(5)]
    assert len({token_volume(each) for each in answers[1:]}) == 1
    for number, answer in enumerate(answers):
        wanted, found = body(number), answer.document
        [main] = found["spec"]["containers"]
        assert (main["args"], main["env"]) == ([f"{number}"], [{"name": "N", "value": f"{number}"}])
        for name in ("labels", "annotations"):
            assert found["metadata"][name] == wanted["metadata"][name]
        stored = await server.call("GET", f"{PODS}/web-{number}")
        assert stored.document == found


async def test_a_label_that_is_not_valid_is_refused_each_time(server: LocalServer) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}", labels={"app": "web"}))
    assert (await posted(server, pod("web-a", labels={"app": "no label!"}))).status == 422


async def test_labels_that_placement_refers_to_are_part_of_the_template(
    server: LocalServer,
) -> None:
    spec = {**PLAIN, "topologySpreadConstraints": [SPREAD]}
    for version in ("1", "1", "1", "2"):
        labels_ = {"app": "web", "version": version}
        answer = await posted(server, pod(spec=spec, labels=labels_))
        [spread] = answer.document["spec"]["topologySpreadConstraints"]
        assert f'"{version}"' in msgspec.json.encode(spread["labelSelector"]).decode()


async def test_a_quota_counts_each_pod(server: LocalServer) -> None:
    await made(server, f"{HOME}/resourcequotas", "few", spec={"hard": {"pods": "4"}})
    await server.clock.advance(1)
    answers = [await posted(server, pod()) for _ in range(6)]
    assert [each.status for each in answers] == [201, 201, 201, 201, 403, 403]
    assert "exceeded quota: few" in answers[5].message


async def test_limits_for_one_name_concern_that_pod_only(server: LocalServer) -> None:
    for number in range(3):
        await posted(server, pod(f"web-{number}", spec=BOUNDED))
    item = {"type": "Pod", "max": {"cpu": "1m"}, "selector": {"name": "web-b"}}
    await made(server, f"{HOME}/limitranges", "one", spec={"limits": [item]})
    answers = [
        await posted(server, pod(name, spec=BOUNDED)) for name in ("web-a", "web-b", "web-c")
    ]
    assert [each.status for each in answers] == [201, 403, 201]


async def test_a_namespace_that_ends_takes_no_more_pods(server: LocalServer) -> None:
    await made(server, NAMESPACES, "ending")
    await made(server, f"{NAMESPACES}/ending/serviceaccounts", "default")
    place = f"{NAMESPACES}/ending/pods"
    for _ in range(3):
        assert (await server.call("POST", place, pod())).status == 201
    await server.call("DELETE", f"{NAMESPACES}/ending")
    answer = await server.call("POST", place, pod())
    assert answer.status == 403
    assert "because it is being terminated" in answer.message
