from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kedge.apiserver.crd.defaulting import apply_defaults, without_nulls
from kedge.apiserver.crd.schema import from_openapi

SCHEMA = from_openapi(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer", "default": 1},
                    "note": {"type": "string"},
                    "pause": {"type": "string", "nullable": True, "default": "no"},
                    "pod": {
                        "type": "object",
                        "default": {},
                        "properties": {"restart": {"type": "string", "default": "Always"}},
                    },
                    "ports": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {"protocol": {"type": "string", "default": "TCP"}},
                        },
                    },
                    "sizes": {
                        "type": "object",
                        "additionalProperties": {"type": "integer"},
                    },
                },
            }
        },
    }
)


def spec(**given: Any) -> Any:
    return apply_defaults(SCHEMA, {"spec": given})["spec"]


def test_absent_fields_get_their_default_and_so_do_fields_within() -> None:
    assert spec() == {"replicas": 1, "pause": "no", "pod": {"restart": "Always"}}


def test_what_is_given_stays_even_where_it_is_nothing() -> None:
    assert spec(replicas=0, pod={"restart": ""})["pod"] == {"restart": ""}
    assert spec(replicas=0)["replicas"] == 0


def test_defaults_reach_into_lists() -> None:
    ports = spec(ports=[{}, {"protocol": "UDP"}])["ports"]
    assert ports == [{"protocol": "TCP"}, {"protocol": "UDP"}]


NULLS = {"replicas": None, "note": None, "pause": None, "sizes": {"a": None, "b": 1}}


def test_null_counts_as_absent_if_there_is_a_default() -> None:
    found = spec(**NULLS)
    assert found["replicas"] == 1
    assert found["pause"] is None, "it is nullable"
    assert found["note"] is None, "validation refuses it"
    assert found["sizes"] == {"a": None, "b": 1}


def test_nulls_that_say_nothing_are_removed() -> None:
    found = without_nulls(SCHEMA, {"spec": NULLS | {"ports": [None, {"protocol": None}]}})
    assert found["spec"] == {
        "replicas": None,  # its default comes later
        "pause": None,
        "sizes": {"b": 1},
        "ports": [None, {"protocol": None}],
    }


def test_an_object_that_is_absent_gets_no_defaults_inside() -> None:
    assert apply_defaults(SCHEMA, {}) == {}


def test_a_default_is_not_shared_between_objects() -> None:
    first = apply_defaults(SCHEMA, {"spec": {}})
    first["spec"]["pod"]["restart"] = "Never"
    assert spec()["pod"] == {"restart": "Always"}


@given(
    st.dictionaries(st.sampled_from(["replicas", "note", "pod", "ports"]), st.none() | st.just({}))
)
def test_twice_is_once(given: dict[str, Any]) -> None:
    once = apply_defaults(SCHEMA, {"spec": given})
    assert apply_defaults(SCHEMA, once) == once
