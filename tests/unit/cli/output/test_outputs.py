"""Objects as text."""

from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kedge.api.core_v1.config_map import RESOURCE
from kedge.apiserver.body import read_yaml
from kedge.cli.output.outputs import text_of, yaml_text

OBJECT: dict[str, Any] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"name": "x", "managedFields": [{"manager": "me"}]},
    "data": {"number": "1", "text": "a\nb\n", "empty": "", "colon": "a: b", "time": "2020-01-01"},
}


def test_yaml_looks_as_kubectl_writes_it() -> None:
    assert (
        text_of([(RESOURCE, OBJECT)], "yaml", alone=True)
        == """\
apiVersion: v1
data:
  colon: 'a: b'
  empty: ""
  number: "1"
  text: |
    a
    b
  time: "2020-01-01"
kind: ConfigMap
metadata:
  name: x
"""
    )


def test_json_is_sorted_indented_and_without_managers() -> None:
    text = text_of([(RESOURCE, OBJECT)], "json", alone=True)
    assert text.startswith('{\n    "apiVersion": "v1",\n    "data": {')
    assert "managedFields" not in text


def test_what_was_not_asked_for_by_name_is_a_list() -> None:
    listed = msgspec.json.decode(text_of([(RESOURCE, OBJECT)], "json", alone=False))
    assert (listed["kind"], len(listed["items"])) == ("List", 1)
    assert text_of([], "jsonpath={.kind}", alone=False) == "List"


def test_names_are_printed_with_their_kinds() -> None:
    assert text_of([(RESOURCE, OBJECT)] * 2, "name", alone=False) == "configmap/x\n" * 2


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(values=st.dictionaries(st.text(max_size=5), _values, min_size=1))
def test_what_is_written_as_yaml_is_read_back_the_same(values: dict[str, Any]) -> None:
    text = yaml_text(values)
    assert yaml.safe_load(text) == values
    assert read_yaml(text.encode()).document == values
