"""Going where a kubeconfig leads."""

from pathlib import Path

import pytest

from kedge.cli.failure import Failure, ServerRefusal
from kedge.cli.objects.client_flags import ClientConfig
from kedge.cli.objects.connection import ApiSession, visit
from kedge.cli.objects.manifests import Manifest
from kedge.client import kubeconfig
from kedge.machinery.errors import bad_request
from kedge.testing.local_server import LocalServer

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}


def manifest(**changes: object) -> Manifest:
    return Manifest({**CONFIG_MAP, **changes}, "file")


def test_the_namespace_is_the_one_given_else_that_of_the_context(there: ApiSession) -> None:
    mine = ApiSession(there.login, there.client, there.discovery, "mine")
    assert (there.namespace, mine.namespace) == ("default", "mine")


async def test_an_object_goes_to_its_own_namespace_else_to_the_current_one(
    there: ApiSession,
) -> None:
    resource = await there.resource_of(manifest())
    own = manifest(metadata={"name": "x", "namespace": "own"})
    assert there.namespace_of(manifest(), resource) == "default"
    assert there.namespace_of(own, resource) == "own"
    elsewhere = ApiSession(there.login, there.client, there.discovery, "other")
    with pytest.raises(Failure, match="You must pass '--namespace=own'"):
        elsewhere.namespace_of(own, resource)
    namespace = await there.resource_of(manifest(kind="Namespace"))
    assert elsewhere.namespace_of(manifest(kind="Namespace"), namespace) == ""


async def test_a_kind_that_was_defined_a_moment_ago_is_known(
    there: ApiSession, server: LocalServer
) -> None:
    backup = manifest(apiVersion="example.com/v1", kind="Backup")
    with pytest.raises(Failure, match='no matches for kind "Backup" in version'):
        await there.resource_of(backup)
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "metadata": {"name": "backups.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "backups", "kind": "Backup", "shortNames": ["bk"]},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await server.call("POST", path, crd)).status == 201
    assert (await there.resource_of(backup)).plural == "backups"
    assert (await there.targets(["bk"]))[0].resource.kind == "Backup"


async def nothing(there: ApiSession) -> int:
    await there.targets(["pods"])
    return 0


def test_without_a_kubeconfig_it_is_said_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="'kedge up' starts a cluster"):
        visit(ClientConfig([tmp_path / "config"]), nothing)


def test_nobody_listening_is_said_with_the_address(tmp_path: Path) -> None:
    path = tmp_path / "config"
    kubeconfig.merge(path, kubeconfig.ClusterAccess("a", "http://127.0.0.1:1", b"", "t"))
    with pytest.raises(ServerRefusal, match="Unable to connect to the server http://127"):
        visit(ClientConfig([path]), nothing)


def test_a_cluster_of_this_machine_that_does_not_answer_is_told_with_its_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "config"
    kubeconfig.merge(path, kubeconfig.ClusterAccess("kedge-dev", "http://127.0.0.1:1", b"", "t"))
    with pytest.raises(ServerRefusal, match=r"\n.*'kedge up --name dev' starts it"):
        visit(ClientConfig([path]), nothing)


def test_what_the_server_refuses_is_said_in_its_words(tmp_path: Path) -> None:
    async def refused(there: ApiSession) -> int:
        raise bad_request("no")

    path = tmp_path / "config"
    kubeconfig.merge(path, kubeconfig.ClusterAccess("a", "http://127.0.0.1:1", b"", "t"))
    with pytest.raises(ServerRefusal) as refusal:
        visit(ClientConfig([path]), refused)
    assert refusal.value.said == "Error from server (BadRequest): no"
