from typing import Any

import pytest

from kedge.testing.local_server import LocalServer

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


def config_map(**fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}} | fields


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"kind": "Secret"},
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to '
            "(core.ConfigMap): unknown conversion",
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "apps/v1"},
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is '
            'registered for version "apps/v1" in scheme "pkg/api/legacyscheme/scheme.go:30"',
        ),
        (
            {"kind": 7},
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get "
            "version/kind; json parse error: json: cannot unmarshal number into Go struct field "
            '.kind of type string ({"metadata":{"name":"a"},"kind ...)',
        ),
    ],
)
async def test_a_body_may_not_contradict_the_url(
    server: LocalServer, fields: dict[str, Any], message: str
) -> None:
    answer = await server.call("POST", MAPS, config_map(**fields))
    assert (answer.status, answer.message) == (400, message)


async def test_a_body_may_leave_out_its_kind_and_version(server: LocalServer) -> None:
    stored = await server.post(MAPS, config_map(data={"k": "v"}))
    assert (stored["kind"], stored["apiVersion"], stored["data"]) == ("ConfigMap", "v1", {"k": "v"})


async def test_unknown_fields_are_dropped_refused_or_warned_of(server: LocalServer) -> None:
    body = config_map(dota={"k": "v"})
    strict = await server.call("POST", f"{MAPS}?fieldValidation=Strict", body)
    assert (strict.status, strict.message) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error:'
        ' unknown field "dota"',
    )
    warned = await server.call("POST", f"{MAPS}?fieldValidation=Warn&dryRun=All", body)
    assert (warned.status, warned.warnings) == (201, ['299 - "unknown field \\"dota\\""'])
    ignored = await server.call("POST", f"{MAPS}?fieldValidation=Ignore", body)
    assert (ignored.status, ignored.warnings) == (201, [])
    assert "dota" not in ignored.document


async def test_a_value_of_the_wrong_type_is_refused_with_its_path(server: LocalServer) -> None:
    answer = await server.call("POST", MAPS, config_map(data=["v"]))
    assert answer.status == 400
    assert answer.message.startswith('ConfigMap in version "v1" cannot be handled as a ConfigMap: ')
    assert "data" in answer.message


async def test_a_spec_that_was_seen_before_is_stored_the_same(server: LocalServer) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    first = await server.post(PODS, {"metadata": {"name": "a"}, "spec": spec})
    second = await server.post(PODS, {"metadata": {"name": "b"}, "spec": spec})
    assert first["spec"] == second["spec"]
    unknown = {"metadata": {"name": "c"}, "spec": spec | {"colour": "red"}}
    for _ in range(2):
        answer = await server.call("POST", f"{PODS}?fieldValidation=Strict", unknown)
        assert 'unknown field "spec.colour"' in answer.message
