"""`kubectl auth`: what may I do, and who am I."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Cluster, Kubectl


def test_can_i(kubectl: Kubectl) -> None:
    assert kubectl.says("auth can-i create deployments") == "yes"
    assert kubectl.says("auth can-i get pods --subresource=log") == "yes"
    assert kubectl.says("auth can-i get /metrics") == "yes"
    done = kubectl("auth can-i list unicorns")
    assert done.stdout == "yes\n"
    assert "the server doesn't have a resource type 'unicorns'" in done.stderr


def test_can_i_list(kubectl: Kubectl) -> None:
    rows = kubectl.table("auth can-i --list")
    assert list(rows[0]) == ["Resources", "Non-Resource URLs", "Resource Names", "Verbs"]
    cells = {(row["Resources"], row["Non-Resource URLs"], row["Verbs"]) for row in rows}
    assert {("*.*", "[]", "[*]"), ("", "[*]", "[*]")} <= cells


def test_who_am_i(kubectl: Kubectl) -> None:
    rows = {row["ATTRIBUTE"]: row["VALUE"] for row in kubectl.table("auth whoami")}
    assert rows["Username"]
    assert rows["Groups"] == "[system:masters system:authenticated]"
    user = kubectl.json("auth whoami")["status"]["userInfo"]
    assert user["username"] == rows["Username"]


def test_a_wrong_token_opens_nothing(kubectl: Kubectl) -> None:
    # Credentials in the file would win over the flag: this user has none but the flag's.
    server = kubectl.cluster.api.url
    refused = kubectl.fails(
        f"get pods --kubeconfig=/dev/null --server={server} --token=guess"
        " --insecure-skip-tls-verify"
    )
    assert "You must be logged in to the server" in refused
    assert "Unauthorized" in refused or "credentials" in refused


def test_a_stranger_may_see_the_health_and_nothing_else(cluster: Cluster) -> None:
    stranger = cluster.api.stranger()
    assert stranger.get("/version")["major"] == "1"
    with pytest.raises(Exception, match="403: ") as refused:
        stranger.get("/api/v1/pods")
    assert str(refused.value) == (
        '403: pods is forbidden: User "system:anonymous" cannot list resource "pods"'
        ' in API group "" at the cluster scope'
    )
