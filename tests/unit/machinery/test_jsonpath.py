import re

import pytest

from kedge.machinery.jsonpath import parse_path

POD = {
    "metadata": {"name": "web", "annotations": {"example.com/owner": "me", "plain": "yes"}},
    "spec": {
        "replicas": 3,
        "containers": [{"name": "a", "cpu": 1}, {"name": "b", "cpu": 2.5}, {"name": "c"}],
    },
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "Initialized", "status": "False", "ok": True},
        ],
        "reason": None,
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (".spec['replicas']", [3]),
        (r".metadata.annotations['example\.com/owner']", ["me"]),
        (r".metadata.annotations.example\.com/owner", ["me"]),
        (".metadata.annotations.*", ["me", "yes"]),
        (".metadata['name','absent']", ["web"]),
        (".spec.containers[0].name", ["a"]),
        (".spec.containers[-1].name", ["c"]),
        (".spec.containers[*].name", ["a", "b", "c"]),
        (".spec.containers[1:].name", ["b", "c"]),
        (".spec.containers[0:3:2].name", ["a", "c"]),
        (".spec.containers[2,0].name", ["c", "a"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Ready')].status", ["True"]),
        ('.status.conditions[?(@.type!="Ready")].status', ["False"]),
        (".status.conditions[?(@.ok)].type", ["Initialized"]),
        (".status.conditions[?(@.ok==true)].type", ["Initialized"]),
        (".spec.containers[?(@.cpu>1)].name", ["b"]),
        (".spec.containers[?(@.cpu<=1.0)].name", ["a"]),
        (".spec.containers[?(@.name==@.name)].name", ["a", "b", "c"]),
        (".status.reason", [None]),
        (".spec.containers[-3].name", ["a"]),
        (".spec.containers[0, 2].name", ["a", "c"]),
        (".spec.containers.*.name", ["a", "b", "c"]),
        (".status.conditions[?(@.ok!=false)].type", ["Initialized"]),
        (".status.conditions[?('Ready'==@.type)].type", ["Ready"]),
        (r".spec.containers[?(@.name=='\a')].name", ["a"]),
        (".spec.containers[?(@.cpu==1)].name", ["a"]),
        (".spec.containers[?(@.cpu>=+1)].name", ["a", "b"]),
        (".spec.containers[?(@.cpu>.5)].name", ["a", "b"]),
    ],
)
def test_paths_lead_to_values(path: str, found: list[object]) -> None:
    assert parse_path(path).find(POD) == found


@pytest.mark.parametrize(
    "path",
    [
        ".spec.absent.deeper",
        ".metadata.name.first",
        ".metadata[0]",
        ".spec.containers[7].name",
        ".status.reason.deeper",
        ".metadata[?(@.name)]",
        '.spec.containers[?(@.cpu=="1")].name',
        ".metadata.annotations['example.com/owner']",
        ".",
        ".metadata['']",
        ".metadata[*]",
        ".spec.containers[-4].name",
        ".spec.containers[3].name",
        ".spec.containers[?(@.name=='')].name",
        ".spec.containers[?(@.name==1)].name",
        ".spec.containers[?(@.cpu==true)].name",
        ".spec.containers[?(@.*==1)].cpu.deeper",
        ".status.conditions[?(@.ok==1)].type",
    ],
)
def test_paths_that_lead_nowhere_find_nothing(path: str) -> None:
    assert parse_path(path).find(POD) == []


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("{.spec", "unclosed action"),
        (".spec[", "unterminated array"),
        (".spec[x]", "invalid array index x"),
        (".spec[]", "invalid array index "),
        (".spec[?(@.a==1]", "unterminated filter"),
        (".spec[?(@.a===1)]", "unrecognized filter operator ==="),
        (".spec[0:1:0]", "step must be > 0"),
        (".spec[']", "invalid array index '"),
        (".spec[?(@.a=='b)]", "unterminated filter"),
        (".spec[?(@.a==\"b')]", "unterminated filter"),
        (".spec[?(@.a=='b'c)]", "unterminated quoted string"),
        ("..name", "recursive descent is not supported"),
        ("spec.replicas", "unrecognized character in action: U+0073 's'"),
        (".spec replicas", "unrecognized character in action: U+0020 ' '"),
    ],
)
def test_bad_paths_are_refused(path: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        parse_path(path)


def test_a_path_prints_as_it_was_written() -> None:
    assert str(parse_path("{.spec.replicas}")) == "{.spec.replicas}"


def test_a_filter_may_hold_brackets_in_quotes() -> None:
    items = [{"key": "a)]b", "value": 1}]
    assert parse_path('[?(@.key=="a)]b")].value').find(items) == [1]
