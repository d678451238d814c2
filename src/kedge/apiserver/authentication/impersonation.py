"""Impersonation: who a request wants to act as, and what its sender must be allowed for that.

There are several ways to be allowed. The plain verb `impersonate` gives all that the other user
has; the constrained ways, `impersonate:MODE`, give only what `impersonate-on:MODE:VERB` allows.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from msgspec.structs import replace

from kedge.apiserver.authentication.authenticator import AUTHENTICATED, UNAUTHENTICATED
from kedge.apiserver.authentication.refusals import CredentialRefused
from kedge.apiserver.authentication.request_headers import extra_key
from kedge.apiserver.authentication.service_accounts import NODE_NAME, groups_of, split_user_name
from kedge.apiserver.authorization.attributes import Attributes, Decision, denied
from kedge.apiserver.pending import MOST_ROUNDS, AnswerPending
from kedge.apiserver.request import ANONYMOUS, User
from kedge.machinery import names
from kedge.machinery.errors import StatusError, bad_request

USER: Final = "impersonate-user"
UID: Final = "impersonate-uid"
GROUP: Final = "impersonate-group"
EXTRA: Final = "impersonate-extra-"
REPEATED: Final = "\n"
"""Separates the values of a header that was sent several times; no value can contain it."""

_AUTHENTICATION: Final = "authentication.k8s.io"
_NODES: Final = "system:nodes"
_MASTERS: Final = "system:masters"

Decide = Callable[[Attributes], Decision]


class Refusal(NamedTuple):
    """A request that a mode refuses to every user."""

    attributes: Attributes
    why: str


class Way(NamedTuple):
    """One mode of impersonation: the permissions that it needs, and the resulting user."""

    mode: str
    """Empty for the plain verb."""
    needs: tuple[Attributes | Refusal, ...]
    user: User


def impersonated_user(headers: Mapping[str, str]) -> User | None:
    """Return the user that the request's headers impersonate; None without such headers.

    Raises 400 if they name a uid, groups or extra fields without a user.
    """
    if "impersonate-" not in "".join(headers):
        return None
    name = _values(headers, USER)[:1]
    uid = "".join(_values(headers, UID)[:1])
    groups = tuple(_values(headers, GROUP))
    extra: dict[str, list[str]] = {}
    for header in sorted(headers):
        if header.startswith(EXTRA):
            key = _extra_key(header[len(EXTRA) :])
            extra.setdefault(key, []).extend(_values(headers, header))
    user = User("".join(name), groups, uid, tuple((k, tuple(v)) for k, v in extra.items()))
    if user.name:
        return user
    if uid or groups or extra:
        raise bad_request(f"requested {_in_go(user)} without impersonating a user name")
    return None


def become(user: User, attributes: Attributes, decide: Decide) -> User:
    """The user that a request is from then on from; 403 if its sender may not become that one.

    `attributes` are those of the request, with its sender as their user. AnswerPending if
    webhooks have to be asked.
    """
    first: StatusError | None = None
    for way in ways(user, attributes):
        problem = _problem(way, decide)
        if problem is None:
            return way.user
        first = first or problem
    assert first is not None
    raise first


def ways(user: User, attributes: Attributes) -> Iterator[Way]:
    """The ways in which the sender of a request might become that user, the narrowest first."""
    only_name = not (user.uid or user.groups or user.extra)
    account = split_user_name(user.name)
    node = _node_of(user.name)
    if node and only_name:
        if split_user_name(attributes.user.name) and _runs_on(attributes.user, node):
            yield _constrained("associated-node", user, attributes)
        yield _constrained("arbitrary-node", user, attributes)
    elif account and only_name:
        yield _constrained("serviceaccount", user, attributes)
    elif not node and not account:
        yield _constrained("user-info", user, attributes)
    asker = _Asker(attributes.user, "impersonate", "")
    needs = (asker.account_or_user(user.name), *_details(asker, user))
    yield Way("", needs, _grouped(user, groups_of(account[0]) if account else ()))


def _constrained(mode: str, user: User, attributes: Attributes) -> Way:
    asker = _Asker(attributes.user, f"impersonate:{mode}", _AUTHENTICATION)
    on = replace(attributes, verb=f"impersonate-on:{mode}:{attributes.verb}")
    account, node = split_user_name(user.name), _node_of(user.name)
    if node:
        # One right serves for whichever node the sender runs on, so it must cover all of them.
        name = "*" if mode == "associated-node" else node
        return Way(mode, (on, asker.needs("nodes", name)), _grouped(user, (_NODES,)))
    who = asker.account_or_user(user.name)
    if account:
        return Way(mode, (on, who), _grouped(user, groups_of(account[0])))
    needs: list[Attributes | Refusal] = [on, who, *_never(asker, user), *_details(asker, user)]
    return Way(mode, tuple(needs), _grouped(user, ()))


class _Asker(NamedTuple):
    """A user who wants to impersonate another one, in one mode."""

    user: User
    verb: str
    group: str
    """The API group of users, groups and service accounts in this way."""

    def needs(
        self, plural: str, name: str, *, namespace: str = "", subresource: str = ""
    ) -> Attributes:
        return Attributes(
            self.user, self.verb, self.group, "v1", plural, subresource, namespace, name
        )

    def account_or_user(self, name: str) -> Attributes:
        account = split_user_name(name)
        if account is None:
            return self.needs("users", name)
        return self.needs("serviceaccounts", account[1], namespace=account[0])


def _details(asker: _Asker, user: User) -> Iterator[Attributes]:
    """Yield the permissions that the requested uid, groups and extra fields need."""
    own = asker._replace(group=_AUTHENTICATION)
    if user.uid:
        yield own.needs("uids", user.uid)
    for group in user.groups:
        yield asker.needs("groups", group)
    for key, values in user.extra:
        for value in values:
            yield own.needs("userextras", value, subresource=key)


def _never(asker: _Asker, user: User) -> Iterator[Refusal]:
    """Yield the refusals of the constrained modes that hold for every user."""
    if "" in user.groups:
        why = "impersonating the empty string group is not allowed"
        yield Refusal(asker.needs("groups", ""), why)
    if _MASTERS in user.groups:
        why = "impersonating the system:masters group is not allowed"
        yield Refusal(asker.needs("groups", _MASTERS), why)
    for key, values in user.extra:
        if why := _bad_extra(key, values):
            yield Refusal(asker.needs("userextras", ""), why)


def _bad_extra(key: str, values: Sequence[str]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    if names.domain_prefixed_path(key):
        return "impersonating an invalid key in extra is not allowed"
    if key != key.lower():
        return f"impersonating a non-lowercase key in extra is not allowed: {json.dumps(key)}"
    if "" in values:
        return "impersonating the empty string value in extra is not allowed"
    return ""


def _problem(way: Way, decide: Decide) -> StatusError | None:
    """The first thing that stands in the way; AnswerPending if it is not known yet."""
    for at, need in enumerate(way.needs):
        if isinstance(need, Refusal):
            return denied(need.attributes, need.why)
        try:
            decision = decide(need)
        except AnswerPending:
            # As many further answers at once as are known: a request may name more groups than
            # it may wait for one by one, but who may not impersonate must not cause many calls.
            further = [e for e in way.needs[at : 2 * at + 1] if isinstance(e, Attributes)]
            raise AnswerPending(partial(_settle_all, further, decide)) from None
        if not decision.allowed:
            return denied(need, decision.reason)
    return None


async def _settle_all(needs: Sequence[Attributes], decide: Decide) -> None:
    async with asyncio.TaskGroup() as tasks:
        for need in needs:
            tasks.create_task(_settle(need, decide))


async def _settle(need: Attributes, decide: Decide) -> None:
    """Get the answers that a decision needs, one of each webhook."""
    for _ in range(MOST_ROUNDS):
        try:
            decide(need)
        except AnswerPending as missing:
            await missing.ask()
        else:
            return


def _grouped(user: User, implied: tuple[str, ...]) -> User:
    """The user in the groups that were asked for, else in those that go without saying."""
    groups = user.groups or implied
    belongs = UNAUTHENTICATED if user.name == ANONYMOUS.name else AUTHENTICATED
    if belongs not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, belongs)
    return User(user.name, groups, user.uid, user.extra)


def _node_of(name: str) -> str:
    """The node that goes by that user name, empty if none could."""
    prefix, _, node = name.partition("system:node:")
    return node if not prefix and node and not names.dns_subdomain(node) else ""


def _runs_on(account: User, node: str) -> bool:
    return dict(account.extra).get(NODE_NAME) == (node,)


def _values(headers: Mapping[str, str], name: str) -> list[str]:
    value = headers.get(name)
    if value is None:
        return []
    try:
        # Headers are read byte by byte; names of users are in UTF-8.
        return value.encode("latin-1").decode().split(REPEATED)
    except UnicodeDecodeError:
        raise bad_request(f"the header {name} is not UTF-8") from None


def _extra_key(text: str) -> str:
    try:
        return extra_key(text)
    except CredentialRefused as refusal:
        raise bad_request(str(refusal)) from None


def _in_go(user: User) -> str:
    """The user as upstream's message shows one."""
    extra = ", ".join(f"{_quoted(key)}:{_strings(values)}" for key, values in user.extra)
    shown = f"map[string][]string{{{extra}}}" if extra else "map[string][]string(nil)"
    groups = _strings(user.groups) if user.groups else "[]string(nil)"
    return f'&user.DefaultInfo{{Name:"", UID:{_quoted(user.uid)}, Groups:{groups}, Extra:{shown}}}'


def _strings(values: Sequence[str]) -> str:
    return f"[]string{{{', '.join(map(_quoted, values))}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
