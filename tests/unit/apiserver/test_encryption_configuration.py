import base64
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.apiserver import encryption_configuration
from kedge.apiserver.kms.services import KeyServices
from kedge.apiserver.store_protection import ConfiguredStore, built_in_names, protect
from kedge.storage.memory import MemoryStore
from kedge.storage.sqlite.store import SqliteStore
from kedge.storage.store import UndecryptableValue
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import LocalServer

HEAD = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
SECRET = base64.b64encode(b"1" * 32).decode()
GCM = {"aesgcm": {"keys": [{"name": "one", "secret": SECRET}]}}


def file(resources: list[str], *providers: Any) -> dict[str, Any]:
    return HEAD | {"resources": [{"resources": resources, "providers": list(providers)}]}


def key(**fields: str) -> dict[str, Any]:
    return {"aescbc": {"keys": [{"name": "one", "secret": SECRET} | fields]}}


def kms(**fields: Any) -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "k", "endpoint": "unix:///k.sock"} | fields}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (HEAD, "resources: Required value: at least one resources is required"),
        (file([], GCM), "resources[0].resources: Required value: at least one resources[0].res"),
        (file(["secrets"]), "resources[0].providers: Required value: at least one resources[0]"),
        (file(["secrets", "secrets"], GCM), "the same resource cannot be specified multiple times"),
        (file(["secrets", "*."], GCM), "using overlapping resources such as 'secrets' and '*.'"),
        (file(["*.*", "pods"], GCM), "using overlapping resources such as 'secrets' and '*.'"),
        (file(["Secrets"], GCM), "resource name should not contain capital letters"),
        (file(["*"], GCM), "use '*.' to encrypt all the resources from core API group or *.*"),
        (file(["events.events.k8s.io"], GCM), "'*.events.k8s.io' objects are stored using"),
        (file(["secrets.*"], GCM), "encrypting the same resource across groups is not supported"),
        (file(["serviceipallocations"], GCM), "resources which do not have REST API/s cannot"),
        (file(["secrets"], {}), "provider does not contain any of the expected providers"),
        (file(["secrets"], GCM | {"identity": {}}), "more than one provider specified in a single"),
        (file(["secrets"], {"kms": {}}), "kms.name: Required value: name is a mandatory field for"),
        (file(["secrets"], kms(apiVersion="v1")), "KMS v1 is not supported: use v2"),
        (file(["secrets"], kms(apiVersion="v3")), "only v1 and v2 are supported"),
        (file(["secrets"], kms(name="a:b")), "invalid KMS provider name a:b, must not contain ':'"),
        (file(["secrets"], kms(), kms()), "duplicate KMS provider name k, names must be unique"),
        (file(["secrets"], kms(endpoint="")), "endpoint is a mandatory field for a kms"),
        (file(["secrets"], kms(endpoint="http://x/y")), 'unsupported scheme "http" for KMS'),
        (file(["secrets"], kms(endpoint="unix:a")), "the absolute path of a socket"),
        (file(["secrets"], kms(timeout="0s")), "timeout should be a positive value"),
        (file(["secrets"], kms(timeout="x")), 'timeout: Invalid value: "x"'),
        (file(["secrets"], kms(cachesize=5)), "cachesize is not supported in v2"),
        (file(["secrets"], {"secretbox": {}}), "secretbox.keys: Required value: at least one keys"),
        (
            file(["secrets"], {"secretbox": {"keys": [{"name": "a", "secret": "A" * 24}]}}),
            "expected length, got 18, expected one of [32]",
        ),
        (file(["secrets"], {"aesgcm": {}}), "aesgcm.keys: Required value: at least one keys is"),
        (file(["secrets"], key(name="")), "keys[0].name: Required value: name is a mandatory"),
        (file(["secrets"], key(secret="")), "secret: Required value: secret is a mandatory field"),
        (file(["secrets"], key(secret="?")), 'secret: Invalid value: "REDACTED": secrets must be'),
        (
            file(["secrets"], key(secret="AAAA")),
            "expected length, got 3, expected one of [16 24 32",
        ),
        (file(["secrets"], {"aes": {}}), "strict decoding error: unknown field"),
    ],
)
def test_what_is_wrong_is_said_without_the_key(document: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)) as caught:
        encryption_configuration.parse(document)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("resources", "path", "is_encrypted"),
    [
        (["secrets"], "secrets/default/a", True),
        (["secrets"], "configmaps/default/a", False),
        (["*."], "minions/a", True),
        (["*."], "services/specs/default/a", True),
        (["*."], "deployments/default/a", False),
        (["deployments.apps"], "deployments/default/a", True),
        (["*.apps"], "statefulsets/default/a", True),
        (["*.*"], "example.org/gadgets/default/a", True),
        (["gadgets.example.org"], "example.org/gadgets/default/a", True),
        (["gadgets.example.org"], "example.org/others/default/a", False),
        (["ingresses.networking.k8s.io"], "ingress/default/a", True),
        (["apiservices.apiregistration.k8s.io"], "apiregistration.k8s.io/apiservices/a", True),
    ],
)
def test_resources_are_matched_by_name_and_group(
    resources: list[str], path: str, is_encrypted: bool
) -> None:
    found = encryption_configuration.parse(file(resources, GCM, {"identity": {}}))
    protection = protect(found, built_in_names(), KeyServices(FakeClock()))(f"/registry/{path}")
    assert protection.sealed("k", b"v").startswith(b"k8s:enc:aesgcm:v1:one:") is is_encrypted


def test_the_first_entry_that_matches_decides() -> None:
    document = HEAD | {
        "resources": [
            {"resources": ["configmaps"], "providers": [{"identity": {}}]},
            {"resources": ["*.*"], "providers": [GCM]},
        ]
    }
    of = protect(
        encryption_configuration.parse(document), built_in_names(), KeyServices(FakeClock())
    )
    assert of("/registry/configmaps/default/a").sealed("k", b"v") == b"v"
    assert of("/registry/secrets/default/a").sealed("k", b"v") != b"v"
    assert of("/elsewhere").sealed("k", b"v") == b"v"


async def test_neither_the_database_nor_its_log_has_values_in_clear(tmp_path: Path) -> None:
    configuration, database = tmp_path / "keys.json", tmp_path / "state" / "store.db"
    configuration.write_bytes(msgspec.json.encode(file(["secrets"], GCM)))
    store = ConfiguredStore(
        await SqliteStore.open(database, FakeClock()), configuration, FakeClock()
    )
    await store.put("/registry/secrets/default/a", b"hidden-value", expect=0)
    await store.put("/registry/configmaps/default/a", b"plain-value", expect=0)
    files = b"".join(path.read_bytes() for path in database.parent.iterdir())
    assert b"plain-value" in files
    assert b"hidden-value" not in files
    await store.close()
    other = key(name="other")
    configuration.write_bytes(msgspec.json.encode(file(["secrets"], other)))
    store = ConfiguredStore(
        await SqliteStore.open(database, FakeClock()), configuration, FakeClock()
    )
    with pytest.raises(UndecryptableValue, match="/registry/secrets/default/a cannot be decrypted"):
        await store.list("/registry/")
    await store.close()


async def test_a_server_without_the_flag_does_not_start_on_encrypted_values() -> None:
    store = MemoryStore(FakeClock())
    await store.put("/registry/secrets/default/a", b"k8s:enc:aesgcm:v1:one:x", expect=0)
    with pytest.raises(UndecryptableValue, match="/registry/secrets/default/a cannot be decrypted"):
        async with LocalServer.running(store):
            pass
