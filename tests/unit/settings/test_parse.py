import argparse

import pytest

from kedge.settings.parse import container_runtime, etcd_endpoints, store


@pytest.mark.parametrize(
    "text",
    ["sqlite", "memory", "etcd://127.0.0.1:2379", "etcd://a:2379,b.example:2379", "etcd://[::1]:1"],
)
def test_a_store_is_named_or_addressed(text: str) -> None:
    assert store(text) == text


def test_the_members_of_an_etcd_are_in_its_address() -> None:
    assert etcd_endpoints("etcd://a:2379,[::1]:2380") == ("a:2379", "[::1]:2380")
    assert etcd_endpoints("sqlite") == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("postgres", "choose sqlite, memory, etcd://HOST:PORT,... or postgresql://"),
        ("http://127.0.0.1:2379", "not a store"),
        ("etcd://", "write HOST:PORT"),
        ("etcd://host", "write HOST:PORT"),
        ("etcd://a:1,", "write HOST:PORT"),
        ("etcd://a:1/path", "write HOST:PORT"),
        ("etcd://a:99999", "port"),
    ],
)
def test_other_stores_are_refused(text: str, complaint: str) -> None:
    with pytest.raises((argparse.ArgumentTypeError, ValueError), match=complaint):
        store(text)


def test_a_password_in_the_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="--etcd-credentials-file") as refused:
        store("etcd://root:secret@127.0.0.1:2379")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["kedge", "cri:///run/containerd/containerd.sock"])
def test_a_runtime_is_named_or_addressed(text: str) -> None:
    assert container_runtime(text) == text


@pytest.mark.parametrize(
    "text", ["", "containerd", "cri://", "cri:///", "cri://host/path", "/run/a"]
)
def test_other_runtimes_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="give kedge, or the socket"):
        container_runtime(text)
