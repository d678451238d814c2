"""Acting as somebody else: who is asked for, what it takes, who one then is."""

from collections.abc import Mapping
from typing import Any

import pytest

from kedge.apiserver.authentication.impersonation import become, impersonated_user, ways
from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.request import User
from kedge.machinery.errors import StatusError

POOR = User("poor", ("system:authenticated",))
AGENT = User(
    "system:serviceaccount:default:agent",
    ("system:serviceaccounts",),
    extra=(("authentication.kubernetes.io/node-name", ("n1",)),),
)
LIST_PODS = Attributes(POOR, "list", "", "v1", "pods", "", "default")
GET_HEALTH = Attributes(POOR, "get", path="/healthz")


def said(attributes: Attributes) -> str:
    """`verb resource/name` with group and namespace, for short."""
    if not attributes.plural:
        return f"{attributes.verb} {attributes.path}"
    where = f"{attributes.namespace}/" if attributes.namespace else ""
    group = f".{attributes.group}" if attributes.group else ""
    return f"{attributes.verb} {attributes.resource}{group} {where}{attributes.name}"


def as_poor(
    headers: Mapping[str, str], *rights: str, request: Attributes = LIST_PODS
) -> tuple[User, list[str]]:
    """Who `poor` becomes with these rights, and what was asked about; `*` is every right."""
    asked: list[str] = []

    def decide(attributes: Attributes) -> Decision:
        asked.append(said(attributes))
        return Decision("*" in rights or said(attributes) in rights)

    user = impersonated_user(headers)
    assert user is not None
    return become(user, request, decide), asked


def test_a_request_without_such_headers_is_from_whoever_sent_it() -> None:
    assert impersonated_user({}) is None
    assert impersonated_user({"accept": "*/*", "x-impersonate-user": "jane"}) is None
    assert impersonated_user({"impersonate-user": ""}) is None


def test_names_are_in_utf_8() -> None:
    sent = {
        name: text.encode().decode("latin-1")
        for name, text in {
            "impersonate-user": "zoë",
            "impersonate-group": "дев",
            "impersonate-extra-%c3%a9": "ü",
        }.items()
    }
    assert impersonated_user(sent) == User("zoë", ("дев",), "", (("é", ("ü",)),))
    for wrong in (
        {"impersonate-user": "\xff"},
        {"impersonate-user": "a", "impersonate-extra-%ff": ""},
    ):
        with pytest.raises(StatusError, match="not UTF-8") as refused:
            impersonated_user(wrong)
        assert refused.value.code == 400


def test_a_broken_escape_in_an_extra_key_is_kept() -> None:
    user = impersonated_user({"impersonate-user": "a", "impersonate-extra-b%2": "c"})
    assert user is not None
    assert user.extra == (("b%2", ("c",)),)


def test_repeated_headers_are_several_values() -> None:
    user = impersonated_user(
        {
            "impersonate-user": "bob",
            "impersonate-uid": "7",
            "impersonate-group": "g1\ng2, g3",
            "impersonate-extra-foo%2fbar": "v1\nv2",
            "impersonate-extra-a": "x",
        }
    )
    extra = (("a", ("x",)), ("foo/bar", ("v1", "v2")))
    assert user == User("bob", ("g1", "g2, g3"), "7", extra)


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        (
            {"impersonate-group": "bob"},
            'Groups:[]string{"bob"}, Extra:map[string][]string(nil)',
        ),
        (
            {"impersonate-group": "bob", "impersonate-extra-foo%2fbar": "bob"},
            'Groups:[]string{"bob"}, Extra:map[string][]string{"foo/bar":[]string{"bob"}}',
        ),
        (
            {"impersonate-extra-a": "x"},
            'Groups:[]string(nil), Extra:map[string][]string{"a":[]string{"x"}}',
        ),
    ],
)
def test_groups_without_a_user_are_refused(headers: dict[str, str], shown: str) -> None:
    with pytest.raises(StatusError) as refused:
        impersonated_user(headers)
    assert refused.value.code == 400
    assert refused.value.message == (
        f'requested &user.DefaultInfo{{Name:"", UID:"", {shown}}} without impersonating a user name'
    )


AUTHENTICATED = "system:authenticated"
ACCOUNT = "system:serviceaccount:default:bob"
ACCOUNTS = ("system:serviceaccounts", "system:serviceaccounts:default")


@pytest.mark.parametrize(
    ("headers", "rights", "user"),
    [
        ({"user": "bob"}, ["impersonate users bob"], User("bob", (AUTHENTICATED,))),
        (
            {"user": "bob", "group": "g1\ng2"},
            ["impersonate users bob", "impersonate groups g1", "impersonate groups g2"],
            User("bob", ("g1", "g2", AUTHENTICATED)),
        ),
        (
            {"user": "bob", "group": AUTHENTICATED},
            ["impersonate users bob", f"impersonate groups {AUTHENTICATED}"],
            User("bob", (AUTHENTICATED,)),
        ),
        (
            {"user": "bob", "group": "system:unauthenticated"},
            ["impersonate users bob", "impersonate groups system:unauthenticated"],
            User("bob", ("system:unauthenticated",)),
        ),
        (
            {"user": "bob", "uid": "7", "extra-scopes": "a\nb"},
            [
                "impersonate users bob",
                "impersonate uids.authentication.k8s.io 7",
                "impersonate userextras/scopes.authentication.k8s.io a",
                "impersonate userextras/scopes.authentication.k8s.io b",
            ],
            User("bob", (AUTHENTICATED,), "7", (("scopes", ("a", "b")),)),
        ),
        (
            {"user": "system:anonymous"},
            ["impersonate users system:anonymous"],
            User("system:anonymous", ("system:unauthenticated",)),
        ),
        (
            {"user": ACCOUNT},
            ["impersonate serviceaccounts default/bob"],
            User(ACCOUNT, (*ACCOUNTS, AUTHENTICATED)),
        ),
        (
            {"user": ACCOUNT, "group": "g"},
            ["impersonate serviceaccounts default/bob", "impersonate groups g"],
            User(ACCOUNT, ("g", AUTHENTICATED)),
        ),
        (
            {"user": "system:serviceaccount:Bad:bob"},
            ["impersonate users system:serviceaccount:Bad:bob"],
            User("system:serviceaccount:Bad:bob", (AUTHENTICATED,)),
        ),
        (
            {"user": "system:node:n1"},
            ["impersonate users system:node:n1"],
            User("system:node:n1", (AUTHENTICATED,)),
        ),
        (
            {"user": "bob", "group": "system:masters"},
            ["impersonate users bob", "impersonate groups system:masters"],
            User("bob", ("system:masters", AUTHENTICATED)),
        ),
    ],
)
def test_the_plain_verb_makes_anybody_of_whoever_has_all_the_rights(
    headers: dict[str, str], rights: list[str], user: User
) -> None:
    sent = {f"impersonate-{name}": value for name, value in headers.items()}
    assert as_poor(sent, *rights)[0] == user
    for missing in rights:
        with pytest.raises(StatusError):
            as_poor(sent, *(right for right in rights if right != missing))


@pytest.mark.parametrize(
    ("headers", "rights", "user"),
    [
        (
            {"user": "bob", "group": "g", "uid": "7", "extra-x.io%2fa": "v"},
            [
                "impersonate-on:user-info:list pods default/",
                "impersonate:user-info users.authentication.k8s.io bob",
                "impersonate:user-info uids.authentication.k8s.io 7",
                "impersonate:user-info groups.authentication.k8s.io g",
                "impersonate:user-info userextras/x.io/a.authentication.k8s.io v",
            ],
            User("bob", ("g", AUTHENTICATED), "7", (("x.io/a", ("v",)),)),
        ),
        (
            {"user": ACCOUNT},
            [
                "impersonate-on:serviceaccount:list pods default/",
                "impersonate:serviceaccount serviceaccounts.authentication.k8s.io default/bob",
            ],
            User(ACCOUNT, (*ACCOUNTS, AUTHENTICATED)),
        ),
        (
            {"user": "system:node:n1"},
            [
                "impersonate-on:arbitrary-node:list pods default/",
                "impersonate:arbitrary-node nodes.authentication.k8s.io n1",
            ],
            User("system:node:n1", ("system:nodes", AUTHENTICATED)),
        ),
    ],
)
def test_the_constrained_verbs_say_also_what_for(
    headers: dict[str, str], rights: list[str], user: User
) -> None:
    sent = {f"impersonate-{name}": value for name, value in headers.items()}
    became, asked = as_poor(sent, *rights)
    assert became == user
    assert asked == rights
    for missing in rights:
        with pytest.raises(StatusError):
            as_poor(sent, *(right for right in rights if right != missing))


def test_a_pod_may_act_as_the_node_it_runs_on() -> None:
    request = Attributes(AGENT, "list", "", "v1", "pods", "", "default")
    rights = (
        "impersonate-on:associated-node:list pods default/",
        "impersonate:associated-node nodes.authentication.k8s.io *",
    )
    became, _ = as_poor({"impersonate-user": "system:node:n1"}, *rights, request=request)
    assert became == User("system:node:n1", ("system:nodes", AUTHENTICATED))
    with pytest.raises(StatusError):
        as_poor({"impersonate-user": "system:node:n2"}, *rights, request=request)


@pytest.mark.parametrize(
    "extra",
    [
        {"impersonate-group": "system:masters"},
        {"impersonate-group": "g\n"},
        {"impersonate-extra-": "v"},
        {"impersonate-extra-plain": "v"},
        {"impersonate-extra-x.io%2fA": "v"},
        {"impersonate-extra-x.io%2fa": "v\n"},
    ],
)
def test_some_things_no_constrained_verb_gives(extra: dict[str, str]) -> None:
    user = impersonated_user({"impersonate-user": "bob", **extra})
    assert user is not None
    rights = [way for way in ways(user, LIST_PODS) if way.mode == "user-info"]
    assert any(not isinstance(need, Attributes) for way in rights for need in way.needs)


@pytest.mark.parametrize(
    ("headers", "request_", "message", "details"),
    [
        (
            {"user": "bob"},
            LIST_PODS,
            'pods is forbidden: User "poor" cannot impersonate-on:user-info:list resource "pods" in'
            ' API group "" in the namespace "default"',
            {"kind": "pods"},
        ),
        (
            {"user": ACCOUNT},
            LIST_PODS,
            'pods is forbidden: User "poor" cannot impersonate-on:serviceaccount:list resource'
            ' "pods" in API group "" in the namespace "default"',
            {"kind": "pods"},
        ),
        (
            {"user": ACCOUNT, "group": "x"},
            LIST_PODS,
            'serviceaccounts "bob" is forbidden: User "poor" cannot impersonate resource'
            ' "serviceaccounts" in API group "" in the namespace "default"',
            {"name": "bob", "kind": "serviceaccounts"},
        ),
        (
            {"user": "system:node:n1", "group": "system:nodes"},
            LIST_PODS,
            'users "system:node:n1" is forbidden: User "poor" cannot impersonate resource "users"'
            ' in API group "" at the cluster scope',
            {"name": "system:node:n1", "kind": "users"},
        ),
        (
            {"user": "bob"},
            GET_HEALTH,
            'forbidden: User "poor" cannot impersonate-on:user-info:get path "/healthz"',
            {},
        ),
    ],
)
def test_refusals_are_worded_as_upstream_words_them(
    headers: dict[str, str], request_: Attributes, message: str, details: dict[str, Any]
) -> None:
    sent = {f"impersonate-{name}": value for name, value in headers.items()}
    with pytest.raises(StatusError) as refused:
        as_poor(sent, request=request_)
    assert refused.value.code == 403
    assert refused.value.message == message
    assert refused.value.details == details


def test_who_may_everything_acts_in_the_narrowest_way() -> None:
    node, _ = as_poor({"impersonate-user": "system:node:n1"}, "*")
    assert node == User("system:node:n1", ("system:nodes", AUTHENTICATED))
    master, _ = as_poor({"impersonate-user": "bob", "impersonate-group": "system:masters"}, "*")
    assert master == User("bob", ("system:masters", AUTHENTICATED))
