import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.config_map import decoded_size
from kedge.api.core_v1.secret import RESOURCE, Secret
from kedge.api.model import ObjectMeta


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def errors(obj: Secret) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_plain_text_is_folded_into_the_data_and_wins() -> None:
    given_ = Secret(data={"a": b64("old"), "b": b64("kept")}, stringData={"a": "new"})
    obj = RESOURCE.strategy.default(given_)
    assert obj.data == {"a": b64("new"), "b": b64("kept")}
    assert RESOURCE.to_document(obj).keys() == {"kind", "apiVersion", "metadata", "data", "type"}
    assert obj.type == "Opaque"


@pytest.mark.parametrize(
    ("type_", "missing"),
    [
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/basic-auth", ["data[username]", "data[password]"]),
        ("kubernetes.io/ssh-auth", ["data[ssh-privatekey]"]),
        ("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"]),
        ("kubernetes.io/dockercfg", ["data[.dockercfg]"]),
        (
            "kubernetes.io/service-account-token",
            ["metadata.annotations[kubernetes.io/service-account.name]"],
        ),
        ("example.com/own", []),
    ],
)
def test_types_demand_their_keys(type_: str, missing: list[str]) -> None:
    assert errors(Secret(type=type_)) == [f"{path}: Required value" for path in missing]


def test_one_of_user_and_password_will_do() -> None:
    assert errors(Secret(type="kubernetes.io/basic-auth", data={"password": ""})) == []


def test_a_pull_secret_must_be_json_and_is_not_quoted_in_the_error() -> None:
    obj = Secret(type="kubernetes.io/dockercfg", data={".dockercfg": b64("hunter2")})
    (error,) = errors(obj)
    assert "hunter2" not in error
    assert error.startswith('data[.dockercfg]: Invalid value: "<secret contents redacted>"')
    good = Secret(type="kubernetes.io/dockercfg", data={".dockercfg": b64('{"auths": {}}')})
    assert errors(good) == []


def test_the_type_is_for_ever() -> None:
    (error,) = RESOURCE.strategy.validate_update(Secret(type="a"), Secret(type="b"))
    assert str(error) == 'type: Invalid value: "a": field is immutable'


def test_a_certificate_that_is_none_is_worth_a_warning() -> None:
    obj = Secret(type="kubernetes.io/tls", data={"tls.crt": b64("x"), "tls.key": b64("y")})
    assert list(RESOURCE.strategy.warnings(obj)) == [
        "tls: failed to find any PEM data in certificate input"
    ]


def test_secrets_can_be_selected_by_type() -> None:
    obj = Secret(metadata=ObjectMeta(name="s"), type="Opaque")
    assert RESOURCE.presentation.fields["type"](obj) == "Opaque"


@given(st.binary(max_size=50))
def test_size_is_that_of_the_decoded_bytes(content: bytes) -> None:
    assert decoded_size(base64.b64encode(content).decode()) == len(content)
