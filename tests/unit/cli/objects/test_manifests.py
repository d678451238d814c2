"""Reading manifests."""

from io import StringIO
from pathlib import Path

import pytest

from kedge.cli.failure import Failure
from kedge.cli.objects.manifests import parse, read, yaml_documents

ONE = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"
TWO = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "two", "namespace": "n"}}'


def names(text: str) -> list[str]:
    return [manifest.name for manifest in parse(text, "file")]


def test_several_yaml_documents_are_several_objects() -> None:
    text = f"# a comment\n---\n{ONE}---\n# nothing here\n---\n{ONE.replace('one', 'two')}"
    assert names(text) == ["one", "two"]


def test_a_document_may_begin_on_the_line_of_the_dashes() -> None:
    assert list(yaml_documents("--- {a: 1}\n---\nb: 2\n")) == [" {a: 1}\n", "b: 2\n"]


def test_json_documents_may_follow_each_other() -> None:
    assert names(f"{TWO}\n{TWO}") == ["two", "two"]


def test_a_flow_mapping_is_yaml_though_it_begins_as_json_does() -> None:
    assert names("{apiVersion: v1, kind: Pod, metadata: {name: x}}") == ["x"]


def test_a_list_stands_for_its_items() -> None:
    (manifest,) = parse(f'{{"apiVersion": "v1", "kind": "List", "items": [{TWO}]}}', "file")
    assert (manifest.kind, manifest.name, manifest.namespace) == ("Pod", "two", "n")


def test_times_and_numbers_are_read_as_kubernetes_reads_them() -> None:
    text = ONE + "data: {when: 2020-01-01T00:00:00Z, mode: 0644, often: 1e3}\n"
    (manifest,) = parse(text, "file")
    assert manifest.document["data"] == {
        "when": "2020-01-01T00:00:00Z",
        "mode": 420,
        "often": 1000.0,
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("kind: Pod", "file: apiVersion not set"),
        (f"{ONE}---\napiVersion: v1", "file: document 2: kind not set"),
        ("a: b: c", "error parsing file: error converting YAML to JSON"),
        ("- a", "error parsing file: error unmarshaling JSON: while decoding JSON"),
        (ONE + "kind: Pod\n", 'key "kind" already set in map'),
        ("apiVersion: v1\nkind: List\nitems: [1]", r"items\[0\] is no object"),
        ("apiVersion: v1\nkind: Pod\nmetadata: x", "metadata is no mapping"),
    ],
)
def test_what_is_no_object_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        names(text)


def test_a_directory_stands_for_its_manifests_in_alphabetical_order(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(ONE.replace("one", "b"))
    (tmp_path / "a.json").write_text(TWO)
    (tmp_path / "README.md").write_text("no manifest")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "c.yml").write_text(ONE.replace("one", "c"))
    found = read([str(tmp_path)], StringIO())
    assert [manifest.name for manifest in found] == ["two", "b"]
    found = read([str(tmp_path)], StringIO(), recursive=True)
    assert [manifest.name for manifest in found] == ["two", "b", "c"]
    assert found[1].source == str(tmp_path / "b.yaml")


def test_a_dash_is_standard_input() -> None:
    (manifest,) = read(["-"], StringIO(ONE))
    assert (manifest.name, manifest.source) == ("one", "STDIN")


def test_nothing_at_all_a_missing_file_and_an_address_are_said(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no objects passed"):
        read(["-"], StringIO("# nothing\n"))
    with pytest.raises(Failure, match=r"cannot read .*x\.yaml: No such file"):
        read([str(tmp_path / "x.yaml")], StringIO())
    with pytest.raises(Failure, match="download it"):
        read(["https://example.com/x.yaml"], StringIO())
