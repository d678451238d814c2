"""The templates of `-o jsonpath=`."""

import pytest

from kedge.cli.failure import Failure
from kedge.cli.output.templates import OutputTemplate

PODS = {
    "items": [
        {"metadata": {"name": "a", "labels": {"x": "1"}}, "ready": True, "ports": [{"n": 80}]},
        {"metadata": {"name": "b"}, "ports": [{"n": 1}, {"n": 2}]},
    ]
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("names: {.items[*].metadata.name}", "names: a b"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.ports[*].n}{"\\n"}{end}', "a\t80\nb\t1 2\n"),
        ("{range .items[*]}{range .ports[*]}<{.n}>{end};{end}", "<80>;<1><2>;"),
        ('{.items[?(@.metadata.name=="b")].ports[0].n}', "1"),
        ("{.items[0].metadata.labels} {.items[0].ready}", '{"x":"1"} true'),
        ("{.nothing}", ""),
        (".items", ".items"),
        ("{'it''s'}", "it''s"),
    ],
)
def test_a_template_is_filled(template: str, text: str) -> None:
    assert OutputTemplate(template).fill(PODS) == text


@pytest.mark.parametrize(
    ("template", "complaint"),
    [
        ("{.a", "unclosed action"),
        ("{range .a}x", "unexpected end of range"),
        ("{range .a}{range .b}{end}", "unexpected end of range"),
        ("{end}", "not in range, nothing to end"),
        ("{.a[}", "unterminated array"),
    ],
)
def test_a_broken_template_is_told(template: str, complaint: str) -> None:
    with pytest.raises(Failure, match=complaint):
        OutputTemplate(template)
