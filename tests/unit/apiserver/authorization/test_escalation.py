from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.catalog import Catalog
from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.api.resource import Resource
from kedge.apiserver.admission.chain import Attempt
from kedge.apiserver.authorization.authorizer import Authorizer
from kedge.apiserver.authorization.escalation import Escalation
from kedge.apiserver.authorization.node import Graph, NodeAuthorizer
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError
from kedge.web.message import HttpRequest

ATTEMPTS = yaml.safe_load(Path(__file__).with_name("escalation.yaml").read_text())["attempts"]
CATALOG = Catalog()


@pytest.fixture
def escalation(table: Callable[[str], Any]) -> Escalation:
    policy = Policy()
    table("escalation.yaml").fill(policy)
    return Escalation(Authorizer(policy, NodeAuthorizer(Graph())))


def resource_of(document: Any) -> Resource[Any]:
    found = CATALOG.of_kind("rbac.authorization.k8s.io/v1", document["kind"])
    assert found is not None
    return found


def attempt_of(entry: Any) -> Attempt:
    """The write that an entry of the table describes."""
    document, old = entry["object"], entry.get("old")
    resource, meta = resource_of(document), document["metadata"]
    user = User(entry["who"]["user"], tuple(entry["who"]["groups"]))
    http = HttpRequest("PUT" if old else "POST", "/")
    verb = "update" if old else "create"
    # On create, too, the name is known by the time of admission.
    request = Request(http, user, resource, verb, meta.get("namespace", ""), meta["name"])
    new, before = decoded(resource, document), decoded(resource, old)
    return Attempt(request, "UPDATE" if old else "CREATE", new, before)


def decoded(resource: Resource[Any], document: Any) -> Any:
    return None if document is None else resource.decode(msgspec.json.encode(document))


@pytest.mark.parametrize("entry", ATTEMPTS, ids=lambda entry: entry["title"])
async def test_rights_are_given_or_refused_as_in_the_table(
    escalation: Escalation, entry: Any
) -> None:
    attempt = attempt_of(entry)
    if "refused" not in entry:
        assert await escalation.mutate(attempt) is attempt.object
        return
    with pytest.raises(StatusError) as refusal:
        await escalation.mutate(attempt)
    assert refusal.value.message == entry["refused"]
    assert refusal.value.code == (404 if entry["refused"].endswith("not found") else 403)


async def test_other_kinds_and_deletions_are_none_of_its_business(escalation: Escalation) -> None:
    pods = CATALOG.find("", "v1", "pods")
    assert pods is not None
    request = Request(HttpRequest("POST", "/"), User("x"), pods, "create", "red", "web")
    pod = pods.decode(b'{"metadata":{"name":"web"}}')
    assert await escalation.mutate(Attempt(request, "CREATE", pod)) is pod
    roles = resource_of({"kind": "Role"})
    request = Request(HttpRequest("DELETE", "/"), User("x"), roles, "delete", "red", "local")
    assert await escalation.mutate(Attempt(request, "DELETE", None)) is None


async def test_a_name_gives_no_right_to_a_role_that_is_only_being_created() -> None:
    policy = Policy()
    rules = [
        PolicyRule(
            apiGroups=["rbac.authorization.k8s.io"],
            resources=["roles"],
            resourceNames=["mine"],
            verbs=["escalate"],
        )
    ]
    policy.put_role(RoleName("red", "r"), rules)
    anna = Subject(kind="User", name="anna")
    policy.put_binding("red", "b", RoleRef(kind="Role", name="r"), [anna])
    escalation = Escalation(Authorizer(policy, NodeAuthorizer(Graph())))
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    meta = {"name": "mine", "namespace": "red"}
    new = {"kind": "Role", "metadata": meta, "rules": [rule]}
    who = {"user": "anna", "groups": []}
    with pytest.raises(StatusError):
        await escalation.mutate(attempt_of({"who": who, "object": new}))
    changed = attempt_of({"who": who, "object": new, "old": {"kind": "Role", "metadata": meta}})
    assert await escalation.mutate(changed) is changed.object


@pytest.mark.parametrize(("kind", "plural"), [("Role", "roles"), ("ClusterRole", "clusterroles")])
async def test_who_may_bind_a_role_need_not_hold_it(kind: str, plural: str) -> None:
    policy = Policy()
    bind = PolicyRule(apiGroups=["rbac.authorization.k8s.io"], resources=[plural], verbs=["bind"])
    policy.put_role(RoleName("red", "binder"), [bind])
    anna = Subject(kind="User", name="anna")
    policy.put_binding("red", "b", RoleRef(kind="Role", name="binder"), [anna])
    escalation = Escalation(Authorizer(policy, NodeAuthorizer(Graph())))
    binding: dict[str, Any] = {
        "kind": "RoleBinding",
        "metadata": {"name": "x", "namespace": "red"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "any"},
    }
    who = {"user": "anna", "groups": []}
    attempt = attempt_of({"who": who, "object": binding})
    assert await escalation.mutate(attempt) is attempt.object
    other = "ClusterRole" if kind == "Role" else "Role"
    refused = {**binding, "roleRef": {**binding["roleRef"], "kind": other}}
    with pytest.raises(StatusError):
        await escalation.mutate(attempt_of({"who": who, "object": refused}))
