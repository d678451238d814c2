"""Descriptions of objects that a kube-apiserver sent."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kedge.cli.descriptions.kinds import describe
from kedge.cli.descriptions.parts import RelatedObjects
from kedge.cli.output import tables
from kedge.machinery import yaml_text

ANSWERS = yaml_text.read(
    (Path(__file__).parents[2] / "client" / "recorded_answers.yaml").read_bytes()
)


def bodies(start: str) -> list[dict[str, Any]]:
    return [msgspec.json.decode(a["body"]) for a in ANSWERS if a["name"].startswith(start)]


OBJECTS = [
    {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"], **each}
    for listed in bodies("list ")
    for each in listed["items"]
]
EVENTS = [each for each in OBJECTS if each["kind"] == "Event"]


@pytest.mark.parametrize("document", OBJECTS, ids=lambda found: found["kind"])
def test_an_object_of_a_kube_apiserver_is_described(document: dict[str, Any]) -> None:
    about = RelatedObjects(now=datetime(2026, 11, 19, tzinfo=UTC), events=EVENTS, pods=[])
    said = describe(document, about)
    assert document["metadata"]["name"] in said
    assert said.count("None") == msgspec.json.encode(document).count(b"None")


@pytest.mark.parametrize("table", bodies("table "), ids=lambda found: str(len(found["rows"])))
def test_a_table_of_a_kube_apiserver_is_printed(table: dict[str, Any]) -> None:
    look = tables.TableOptions(wide=True, namespaces=True)
    columns = table["columnDefinitions"]
    printed = [tables.heading(columns, look), *tables.rows(table, columns, look)]
    assert len(printed) == len(table["rows"]) + 1
    assert len({len(row) for row in printed}) == 1
