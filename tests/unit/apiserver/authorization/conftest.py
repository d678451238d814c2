"""Tables of questions: `VERB RESOURCE[.GROUP][/SUBRESOURCE] [NAME] [in NAMESPACE] [where FIELDS]`,
or `VERB /PATH`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kedge.api.rbac_v1.role import PolicyRule
from kedge.api.rbac_v1.role_binding import RoleRef, Subject
from kedge.apiserver.authorization.attributes import Attributes, Decision
from kedge.apiserver.authorization.rbac import Policy, RoleName
from kedge.apiserver.request import User
from kedge.machinery.selectors import parse_fields

_QUESTION = re.compile(
    r"(?P<verb>\S+) (?:(?P<path>/\S*)|(?P<plural>[^\s./]+)(?:\.(?P<group>[^\s/]+))?"
    r"(?:/(?P<subresource>\S+))?(?: (?!in |where )(?P<name>\S+))?(?: in (?P<namespace>\S+))?"
    r"(?: where (?P<fields>\S+))?)"
)

Ask = Callable[[Attributes], Decision]


def question(user: User, text: str) -> Attributes:
    found = _QUESTION.fullmatch(text)
    assert found is not None, text
    parts: dict[str, Any] = {key: value for key, value in found.groupdict().items() if value}
    if "fields" in parts:
        parts["fields"] = parse_fields(parts["fields"])
    return Attributes(user=user, **parts)


def person(who: Mapping[str, Any]) -> User:
    return User(who["user"], tuple(who.get("groups", ())))


class Table:
    """One of the tables beside this file."""

    def __init__(self, name: str) -> None:
        self.content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name(name).read_text())

    def wrong(self, ask: Ask) -> Iterator[str]:
        """Every answer that is not the one in the table."""
        for entry in self.content["questions"]:
            user = person(entry["who"])
            for expected in ("allowed", "refused"):
                for text in entry.get(expected, []):
                    given = ask(question(user, text))
                    if given.allowed != (expected == "allowed"):
                        yield f"{user.name}: {text}: not {expected}"
                    elif given.reason != entry.get("why", given.reason):
                        yield f"{user.name}: {text}: {given.reason!r}"

    def fill(self, policy: Policy) -> None:
        """Put the roles and bindings of the table into a policy."""
        for name, rules in self.content.get("cluster-roles", {}).items():
            policy.put_role(RoleName("", name), _rules(rules))
        for path, rules in self.content.get("roles", {}).items():
            policy.put_role(RoleName(*path.split("/")), _rules(rules))
        for each in self.content.get("bindings", []):
            kind, role = each["role"].split("/")
            ref = RoleRef(kind=kind, name=role)
            subjects = [_subject(*text.split(" ")) for text in each["to"]]
            policy.put_binding(each.get("namespace", ""), each["name"], ref, subjects)


def _rules(documents: Iterable[Any]) -> list[PolicyRule]:
    return msgspec.convert(documents, list[PolicyRule])


def _subject(kind: str, name: str) -> Subject:
    namespace, slash, account = name.partition("/")
    return (
        Subject(kind=kind, name=account, namespace=namespace)
        if slash
        else Subject(kind=kind, name=name)
    )


@pytest.fixture
def table() -> Callable[[str], Table]:
    return Table


@pytest.fixture(name="question")
def question_fixture() -> Callable[[User, str], Attributes]:
    return question
