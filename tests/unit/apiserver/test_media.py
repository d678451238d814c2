"""Which form a client wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.pod import pod_addresses
from kedge.apiserver.media import (
    DISCOVERY,
    ResponseForm,
    body_type,
    negotiate,
    parse_accept,
    wants_addresses_only,
    wants_aggregated_discovery,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "forms"),
    [
        ("", [ResponseForm("json")]),
        ("*/*", [ResponseForm("json")]),
        ("application/*", [ResponseForm("json")]),
        (f"{PROTOBUF},application/json", [ResponseForm("protobuf"), ResponseForm("json")]),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io", []),
        (
            f"{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            [ResponseForm("protobuf-partial-list")],
        ),
        (
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io",
            [ResponseForm("protobuf-partial", "v1beta1")],
        ),
        ("application/yaml, application/json", [ResponseForm("yaml"), ResponseForm("json")]),
        ("application/json;q=0.5, application/yaml", [ResponseForm("yaml"), ResponseForm("json")]),
        ("application/json;q=0", [ResponseForm("json")]),
        ("application/json;q=x", [ResponseForm("json")]),
        ("text/html", []),
        (f"{TABLE},application/json", [ResponseForm("table"), ResponseForm("json")]),
        (
            'APPLICATION/JSON; g="meta.k8s.io"; as=Table ;v=v1beta1',
            [ResponseForm("table", "v1beta1")],
        ),
        ("application/json;as=Table;v=v2;g=meta.k8s.io", []),
        ("application/json;as=Table;v=v1;g=other", []),
        ("application/json;as=Drawing;v=v1;g=meta.k8s.io", []),
        (pod_addresses.MEDIA_TYPE, [ResponseForm("addresses")]),
        ("application/json;as=PodAddresses;v=v2;g=network.kedge.dev", []),
    ],
)
def test_forms_come_best_first(accept: str, forms: list[ResponseForm]) -> None:
    assert list(negotiate(accept)) == forms


@given(st.text(st.sampled_from("application/json;,=q01. *vas\"'é"), max_size=2000))
def test_no_header_is_too_strange(accept: str) -> None:
    negotiate(accept)
    wants_aggregated_discovery(accept)


def test_aggregated_discovery_must_be_asked_for_before_plain_json() -> None:
    assert wants_aggregated_discovery(DISCOVERY)
    assert wants_aggregated_discovery(f"{DISCOVERY},application/json")
    assert not wants_aggregated_discovery(f"application/json,{DISCOVERY}")
    assert not wants_aggregated_discovery(DISCOVERY.replace("v=v2", "v=v2beta1"))
    assert not wants_aggregated_discovery("")


def test_parameters_of_a_body_type_do_not_matter() -> None:
    assert body_type("Application/JSON ; charset=utf-8") == "application/json"
    assert body_type("") == ""


def test_addresses_are_the_only_form_unless_the_client_takes_another() -> None:
    assert wants_addresses_only(pod_addresses.MEDIA_TYPE)
    for accept in ("", "application/json", f"{pod_addresses.MEDIA_TYPE},*/*", "text/html"):
        assert not wants_addresses_only(accept)


def test_only_the_first_media_types_of_a_long_header_count() -> None:
    assert len(parse_accept(",".join(["a/b"] * 15_000))) == 256
    assert [each.name for each in parse_accept("a/b" + "," * 300 + "c/d")] == ["a/b"]
