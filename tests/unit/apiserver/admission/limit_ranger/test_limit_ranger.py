"""Which requests LimitRanges have a say in, and from when on."""

from typing import Any

import pytest
from tests.unit.apiserver.admission.limit_ranger import documents
from tests.unit.apiserver.admission.limit_ranger.reference import ANNOTATION

from kedge.testing.local_server import MERGE, STRATEGIC, LocalAnswer, LocalServer
from kedge.testing.workloads import workload_document

CORE = "/api/v1/namespaces/default"
PODS = f"{CORE}/pods"
CLAIMS = f"{CORE}/persistentvolumeclaims"
LIMIT_RANGES = f"{CORE}/limitranges"
SMALL = documents.limit_range(
    "small",
    [
        {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1", "memory": "1Gi"}},
        {"type": "Pod", "max": {"cpu": "2"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "500Mi"}},
    ],
)
BIG = {"requests": {"cpu": "4"}, "limits": {"cpu": "8"}}
TOO_BIG = (
    "[maximum cpu usage per Container is 1, but limit is 8, "
    "maximum cpu usage per Pod is 2, but limit is 8]"
)


def pod(name: str, resources: dict[str, Any]) -> documents.Document:
    return documents.pod({"containers": {"a": resources}}, name)


async def resize(server: LocalServer, name: str, resources: dict[str, Any]) -> LocalAnswer:
    change = {"spec": {"containers": [{"name": "a", "resources": resources}]}}
    return await server.call("PATCH", f"{PODS}/{name}/resize", change, content_type=STRATEGIC)


async def resources(server: LocalServer, name: str) -> Any:
    return documents.resources(await server.get(f"{PODS}/{name}"))["a"]


async def test_a_pod_that_is_there_may_be_changed_whatever_the_limits(limited: LocalServer) -> None:
    await limited.post(PODS, pod("p", BIG))
    await limited.post(LIMIT_RANGES, SMALL)
    await limited.merge(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    stored = await limited.get(f"{PODS}/p")
    stored["spec"]["containers"][0]["image"] = "other"
    await limited.put(f"{PODS}/p", stored)
    await limited.merge(f"{PODS}/p/status", {"status": {"message": "hello"}})
    stored = await limited.get(f"{PODS}/p")
    assert documents.resources(stored)["a"] == BIG
    assert ANNOTATION not in stored["metadata"].get("annotations", {})


async def test_ephemeral_containers_are_neither_given_defaults_nor_checked(
    limited: LocalServer,
) -> None:
    await limited.post(PODS, pod("p", BIG))
    await limited.post(LIMIT_RANGES, SMALL)
    change = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "busybox"}]}}
    done = await limited.call(
        "PATCH", f"{PODS}/p/ephemeralcontainers", change, content_type=STRATEGIC
    )
    assert done.status == 200, done.message
    (debug,) = done.document["spec"]["ephemeralContainers"]
    assert not debug.get("resources")


async def test_a_resize_is_checked_as_a_whole_and_given_defaults(limited: LocalServer) -> None:
    small = {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
    await limited.post(PODS, pod("p", small))
    await limited.post(LIMIT_RANGES, SMALL)
    refused = await resize(limited, "p", {"limits": {"cpu": "2"}})
    assert (refused.status, refused.message) == (
        403,
        'pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2',
    )
    assert await resources(limited, "p") == small
    done = await resize(limited, "p", {"limits": {"cpu": "1"}})
    assert done.status == 200, done.message
    assert await resources(limited, "p") == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    }
    assert ANNOTATION not in done.document["metadata"].get("annotations", {})


async def test_a_resize_down_to_less_than_before_may_still_be_too_much(
    limited: LocalServer,
) -> None:
    await limited.post(PODS, pod("p", BIG))
    await limited.post(LIMIT_RANGES, SMALL)
    refused = await resize(limited, "p", {"limits": {"cpu": "6"}})
    assert refused.message.endswith("maximum cpu usage per Pod is 2, but limit is 6]")


async def test_a_pod_that_is_being_deleted_is_left_alone(limited: LocalServer) -> None:
    kept = pod("p", {"limits": {"cpu": "100m"}})
    kept["metadata"]["finalizers"] = ["example.com/keep"]
    await limited.post(PODS, kept)
    await limited.post(LIMIT_RANGES, SMALL)
    await limited.delete(f"{PODS}/p")
    done = await resize(limited, "p", {"requests": {"cpu": "7"}, "limits": {"cpu": "7"}})
    assert done.status == 200, done.message
    assert await resources(limited, "p") == {"requests": {"cpu": "7"}, "limits": {"cpu": "7"}}


async def test_any_change_of_a_claim_is_checked_but_not_that_of_its_status(
    limited: LocalServer,
) -> None:
    await limited.post(CLAIMS, documents.claim({"requests": {"storage": "1Gi"}}))
    await limited.post(LIMIT_RANGES, SMALL)
    label = {"metadata": {"labels": {"a": "b"}}}
    refused = await limited.call("PATCH", f"{CLAIMS}/v", label, content_type=MERGE)
    assert (refused.status, refused.message) == (
        403,
        'persistentvolumeclaims "v" is forbidden: maximum storage usage per '
        "PersistentVolumeClaim is 500Mi, but request is 1Gi",
    )
    await limited.merge(f"{CLAIMS}/v/status", {"status": {"phase": "Bound"}})


async def test_a_claim_that_is_being_deleted_is_left_alone(limited: LocalServer) -> None:
    kept = documents.claim({"requests": {"storage": "1Gi"}})
    kept["metadata"]["finalizers"] = ["example.com/keep"]
    await limited.post(CLAIMS, kept)
    await limited.post(LIMIT_RANGES, SMALL)
    await limited.delete(f"{CLAIMS}/v")
    await limited.merge(f"{CLAIMS}/v", {"metadata": {"finalizers": None}})
    assert (await limited.get(CLAIMS))["items"] == []


async def test_every_way_to_create_is_checked(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, SMALL)
    big = pod("p", BIG)
    dry = await limited.call("POST", f"{PODS}?dryRun=All", big)
    applied = await limited.apply(f"{PODS}/p?fieldManager=me", big)
    for answer in (dry, applied):
        assert (answer.status, answer.message) == (403, f'pods "p" is forbidden: {TOO_BIG}')
    big["metadata"] = {"generateName": "gen-"}
    named = await limited.call("POST", PODS, big)
    name = named.document["details"]["name"]
    assert name.startswith("gen-")
    assert len(name) == len("gen-") + 5
    assert named.message == f'pods "{name}" is forbidden: {TOO_BIG}'


async def test_a_dry_run_shows_the_defaults(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, SMALL)
    shown = await limited.post(f"{PODS}?dryRun=All", pod("p", {}))
    all_of_it = {"cpu": "1", "memory": "1Gi"}
    assert documents.resources(shown)["a"] == {"requests": all_of_it, "limits": all_of_it}
    assert (await limited.get(PODS))["items"] == []


async def test_templates_of_workloads_are_kept_as_they_are(limited: LocalServer) -> None:
    await limited.post(LIMIT_RANGES, SMALL)
    deployment = workload_document({})
    made = await limited.post("/apis/apps/v1/namespaces/default/deployments", deployment)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert not container.get("resources")


async def test_limits_hold_in_their_own_namespace_only(limited: LocalServer) -> None:
    await limited.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    await limited.post("/api/v1/namespaces/other/limitranges", SMALL)
    made = await limited.post(PODS, pod("p", BIG))
    assert documents.resources(made)["a"] == BIG


async def test_every_change_of_a_limit_range_holds_at_once(limited: LocalServer) -> None:
    async def outcome() -> int:
        return (await limited.call("POST", f"{PODS}?dryRun=All", pod("p", BIG))).status

    assert await outcome() == 201
    await limited.post(LIMIT_RANGES, SMALL)
    assert await outcome() == 403
    roomy = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "8"}}]}}
    await limited.merge(f"{LIMIT_RANGES}/small", roomy)
    assert await outcome() == 201
    await limited.put(f"{LIMIT_RANGES}/small", SMALL)
    assert await outcome() == 403
    await limited.delete(f"{LIMIT_RANGES}/small")
    assert await outcome() == 201
    await limited.post(LIMIT_RANGES, SMALL)
    await limited.delete(LIMIT_RANGES)
    assert await outcome() == 201


async def test_a_limit_range_that_is_being_deleted_still_holds(limited: LocalServer) -> None:
    kept = SMALL | {"metadata": {"name": "small", "finalizers": ["example.com/keep"]}}
    await limited.post(LIMIT_RANGES, kept)
    await limited.delete(f"{LIMIT_RANGES}/small")
    assert (await limited.call("POST", PODS, pod("p", BIG))).status == 403


async def test_without_the_plugin_limit_ranges_are_served_and_not_enforced(
    server: LocalServer,
) -> None:
    made = await server.post(LIMIT_RANGES, SMALL)
    assert made["spec"]["limits"][0]["defaultRequest"] == {"cpu": "1", "memory": "1Gi"}
    stored = await server.post(PODS, pod("p", BIG))
    assert documents.resources(stored)["a"] == BIG
    stored = await server.post(PODS, pod("q", {}))
    assert documents.resources(stored)["a"] == {}
    await server.post(CLAIMS, documents.claim({"requests": {"storage": "1Ti"}}))


REGEX = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
SUFFIX = "unable to parse quantity's suffix"


@pytest.mark.parametrize(
    ("amount", "why"),
    [
        ("abc", REGEX),
        ("1Mb", REGEX),
        ("", REGEX),
        ("1 000", REGEX),
        ("1,5", REGEX),
        ("0x10", REGEX),
        (True, REGEX),
        ({}, REGEX),
        ([], REGEX),
        ("1e", SUFFIX),
        ("--1", SUFFIX),
        ("1K", SUFFIX),
    ],
)
async def test_what_is_no_amount_cannot_be_read(
    limited: LocalServer, amount: object, why: str
) -> None:
    items = [{"type": "Container", "max": {"cpu": amount}}]
    answer = await limited.call("POST", LIMIT_RANGES, documents.limit_range("x", items))
    assert (answer.status, answer.reason, answer.message) == (
        400,
        "BadRequest",
        f'LimitRange in version "v1" cannot be handled as a LimitRange: {why}',
    )
    asked = await limited.call("POST", PODS, pod("p", {"limits": {"cpu": amount}}))
    assert (asked.status, asked.message) == (
        400,
        f'Pod in version "v1" cannot be handled as a Pod: {why}',
    )
    assert (await limited.get(LIMIT_RANGES))["items"] == []
    assert (await limited.get(PODS))["items"] == []


@pytest.mark.parametrize(
    ("amount", "stored"),
    [(1, "1"), (1.5, "1500m"), (" 64Mi ", "64Mi"), (None, "0"), ("12E", "12E"), ("-1", "-1")],
)
async def test_unusual_amounts_are_amounts(
    limited: LocalServer, amount: object, stored: str
) -> None:
    items = [{"type": "Container", "max": {"memory": amount}}]
    made = await limited.post(LIMIT_RANGES, documents.limit_range("x", items))
    every = {"memory": stored}
    assert made["spec"]["limits"] == [
        {"type": "Container", "max": every, "default": every, "defaultRequest": every}
    ]


@pytest.mark.parametrize(
    ("items", "why"),
    [
        (
            [{"type": "Foo", "max": {"cpu": "1"}}],
            'spec.limits[0].type: Invalid value: "Foo": '
            "must be a standard limit type or fully qualified",
        ),
        (
            [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}],
            'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
        ),
        (
            [{"type": "Pod", "maxLimitRequestRatio": {"cpu": "0.5", "memory": "-1"}}],
            '[spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": '
            "ratio 500m is less than 1, "
            'spec.limits[0].maxLimitRequestRatio[memory]: Invalid value: "-1": '
            "ratio -1 is less than 1]",
        ),
    ],
)
async def test_a_contradiction_is_told_and_nothing_is_stored(
    limited: LocalServer, items: list[dict[str, Any]], why: str
) -> None:
    await limited.post(LIMIT_RANGES, SMALL)
    made = await limited.call("POST", LIMIT_RANGES, documents.limit_range("x", items))
    assert (made.status, made.reason) == (422, "Invalid")
    assert made.message == f'LimitRange "x" is invalid: {why}'
    changed = documents.limit_range("small", items)
    updated = await limited.call("PUT", f"{LIMIT_RANGES}/small", changed)
    assert updated.message == f'LimitRange "small" is invalid: {why}'
    (left,) = (await limited.get(LIMIT_RANGES))["items"]
    assert left["spec"]["limits"][0]["max"] == {"cpu": "1"}


async def test_a_name_that_is_none_is_told(limited: LocalServer) -> None:
    made = await limited.call("POST", LIMIT_RANGES, documents.limit_range("Bad_Name", []))
    assert made.status == 422
    assert made.message.startswith(
        'LimitRange "Bad_Name" is invalid: metadata.name: Invalid value: "Bad_Name": '
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"
    )


async def test_amounts_of_pods_may_be_huge_but_not_negative(limited: LocalServer) -> None:
    bounds = [{"type": "Container", "max": {"memory": "12E"}}]
    await limited.post(LIMIT_RANGES, documents.limit_range("x", bounds))
    await limited.post(PODS, pod("p", {"limits": {"memory": "12E"}}))
    over = await limited.call("POST", PODS, pod("q", {"limits": {"memory": "12000001T"}}))
    assert over.message == (
        'pods "q" is forbidden: maximum memory usage per Container is 12E, but limit is 12000001T'
    )
    negative = await limited.call("POST", PODS, pod("r", {"limits": {"memory": "-1"}}))
    assert (negative.status, negative.reason) == (422, "Invalid")


async def test_a_limit_range_that_would_refuse_running_pods_names_them(
    limited: LocalServer,
) -> None:
    for number in range(7):
        await limited.post(PODS, pod(f"p{number}", BIG))
    await limited.post(PODS, pod("small", {"limits": {"cpu": "1"}}))
    item = {"type": "Container", "max": {"cpu": "1"}}
    limit_range = documents.limit_range("limits", [item])
    answer = await limited.call("POST", LIMIT_RANGES, limit_range)
    why = "maximum cpu usage per Container is 1, but limit is 8"
    assert answer.status == 201
    assert answer.warnings == [
        *(f'299 - "running pod \\"p{n}\\" would be refused: {why}"' for n in range(5)),
        '299 - "2 more running pods would be refused: see kedge explain limits --existing"',
    ]
    assert (await limited.call("DELETE", f"{LIMIT_RANGES}/limits")).warnings == []


async def test_a_limit_range_that_running_pods_keep_draws_no_warning(limited: LocalServer) -> None:
    await limited.post(PODS, pod("p", BIG))
    await limited.post("/api/v1/namespaces", {"metadata": {"name": "other"}})
    answer = await limited.call("POST", "/api/v1/namespaces/other/limitranges", SMALL)
    assert (answer.status, answer.warnings) == (201, [])
    wide = documents.limit_range("wide", [{"type": "Container", "max": {"cpu": "8"}}])
    assert (await limited.call("POST", LIMIT_RANGES, wide)).warnings == []


async def test_implied_defaults_can_be_switched_off(limited: LocalServer) -> None:
    item = {"type": "Container", "max": {"cpu": "1"}, "default": {"memory": "1Gi"}}
    limit_range = documents.limit_range("limits", [{**item, "impliedDefaults": False}])
    made = await limited.call("POST", LIMIT_RANGES, limit_range)
    assert made.document["spec"]["limits"] == [{**item, "impliedDefaults": False}]
    assert "spec.limits[0].impliedDefaults: kedge extension" in made.warnings[0]
    refused = await limited.call("POST", PODS, pod("p", {}))
    assert refused.status == 403
    assert "maximum cpu usage per Container is 1.  No limit is specified" in refused.message
    await limited.post(PODS, pod("p", {"limits": {"cpu": "1"}}))
    assert await resources(limited, "p") == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "1"},
    }


async def test_implied_defaults_are_about_containers_only(limited: LocalServer) -> None:
    item = {"type": "Pod", "max": {"cpu": "1"}, "impliedDefaults": False}
    answer = await limited.call("POST", LIMIT_RANGES, documents.limit_range("limits", [item]))
    assert answer.status == 422
    assert "spec.limits[0].impliedDefaults: Forbidden" in answer.message
