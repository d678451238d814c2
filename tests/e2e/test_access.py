"""The table in access.yaml: people, what they ask for, and whether they get it."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Api

TABLE = yaml.safe_load(Path(__file__).with_name("access.yaml").read_text())
CODES = (200, 201, 401, 403, 404)
WRITES = ("POST", "PUT", "PATCH", "DELETE")
MERGE = "application/merge-patch+json"


class World:
    """The objects of the table, under names that nothing else in the cluster has."""

    def __init__(self, api: Api) -> None:
        self.api = api
        mark = uuid.uuid4().hex[:8]
        self.names = {word: f"{word.lower()}-{mark}" for word in ("RED", "BLUE", "NODE", "OTHER")}
        self._word = re.compile("|".join(self.names))
        self._made: list[str] = []
        self.tokens: dict[str, str] = {}

    def named(self, value: Any) -> Any:
        """A piece of the table with names instead of the words that stand for them."""
        text = self._word.sub(lambda found: self.names[found.group()], json.dumps(value))
        return json.loads(text)

    def make(self) -> None:
        for word in ("RED", "BLUE"):
            self.create("/api/v1/namespaces", {"metadata": {"name": self.names[word]}})
        for document in self.named(TABLE["objects"]):
            self.create(collection(document), document)

    def create(self, path: str, document: Any) -> None:
        self.api.create(path, document)
        self._made.append(f"{path}/{document['metadata']['name']}")

    def remove(self) -> None:
        for path in reversed(self._made):
            now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            self.api.delete(path, now)

    def token_of(self, account: str) -> str:
        """A token of a service account of RED, as `kubectl create token` gets one."""
        if account not in self.tokens:
            home = f"/api/v1/namespaces/{self.names['RED']}/serviceaccounts/{account}/token"
            answer = self.api.create(home, {"spec": {"expirationSeconds": 3600}})
            self.tokens[account] = answer["status"]["token"]
        return self.tokens[account]


PLURALS = {"Lease": "leases", "Deployment": "deployments", "Pod": "pods", "Node": "nodes"}


def collection(document: Any) -> str:
    """Where objects like this one are created."""
    version, kind, meta = document["apiVersion"], document["kind"], document["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{place}/{PLURALS.get(kind, kind.lower() + 's')}"


@pytest.fixture(scope="module")
def world(api: Api) -> Iterator[World]:
    found = World(api)
    try:
        found.make()
        wait_for_sums(api)
        yield found
    finally:
        found.remove()


def wait_for_sums(api: Api) -> None:
    """Roles that are the sum of others have their rules a moment after a cluster's first start."""
    for role in ("admin", "edit", "view"):
        for _ in range(200):
            if api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}").get("rules"):
                break
            time.sleep(0.05)


def sent(world: World, person: Any, line: str) -> int:
    """The status that a person gets for a line of the table."""
    method, url, *body = line.split(" ")
    if method in WRITES:
        url += "&dryRun=All" if "?" in url else "?dryRun=All"
    headers, asker = acting(person), world.api.stranger()
    asker.token = token(world, person)
    if method == "PATCH":
        headers["Content_Type"] = MERGE
    document = world.named(TABLE["bodies"][body[0]]) if body else None
    try:
        with asker.open(asker.request(method, url, document, **headers)) as answer:
            return int(answer.status)
    except Exception as refused:
        code = getattr(refused, "code", None)
        if code is None:
            raise
        return int(code)


def acting(person: Any) -> dict[str, str]:
    """The headers with which a request is made in somebody else's name."""
    user = person.get("user") or person.get("as")
    groups = person.get("groups") or person.get("as-groups") or []
    assert len(groups) < 2, "this client cannot send a header twice"
    headers = {"Impersonate_User": user} if user else {}
    if groups:
        headers["Impersonate_Group"] = groups[0]
    return headers


def token(world: World, person: Any) -> str:
    """A user is somebody in whose name the administrator asks; a service account has a token."""
    if "user" in person:
        return world.api.token
    if "account" in person:
        return world.token_of(person["account"])
    return str(person.get("token", ""))


@pytest.mark.parametrize("person", TABLE["requests"], ids=lambda person: person["who"])
def test_everybody_gets_what_the_table_says(world: World, person: Any) -> None:
    person = world.named(person)
    wrong = []
    for code in CODES:
        for line in person.get(str(code), []):
            answered = sent(world, person, line)
            if answered != code:
                wrong.append(f"{line}: {answered} instead of {code}")
    assert not wrong, "\n".join([person["who"], *wrong])


def test_the_table_is_of_some_size_and_asks_nothing_twice() -> None:
    counts = Counter(
        (person["who"], line)
        for person in TABLE["requests"]
        for code in CODES
        for line in person.get(code, [])
    )
    assert len(counts) >= 150
    assert max(counts.values()) == 1
