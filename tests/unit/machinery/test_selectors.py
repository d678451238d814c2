import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.machinery.selectors import (
    EVERYTHING,
    MOST_REQUIREMENTS,
    NOTHING,
    FieldSelector,
    FieldTerm,
    LabelRequirements,
    Requirement,
    labels_from_map,
    labels_from_object,
    parse_fields,
    parse_labels,
)

WEB = {"app": "web", "tier": "front", "size": "5", "empty": ""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "app",
        "!absent",
        "app=web",
        "app==web",
        " app = web , tier ",
        "app!=db",
        "absent!=db",
        "app in (web, db)",
        "app notin (db)",
        "absent notin (db)",
        "size>4",
        "size<6",
        "empty=",
        "empty=,app",
        "empty in ()",
        "empty in (a,)",
        "app=web,tier=front,!absent",
        "app in (in,web)",
    ],
)
def test_selectors_that_match(text: str) -> None:
    assert parse_labels(text).matches(WEB)


@pytest.mark.parametrize(
    "text",
    [
        "absent",
        "!app",
        "app=db",
        "absent=",
        "app!=web",
        "app in (db)",
        "absent in (db)",
        "app notin (web,db)",
        "size>5",
        "size<5",
        "app>1",
        "absent<1",
        "app=web,tier=back",
        "app=web,app=db",
    ],
)
def test_selectors_that_do_not_match(text: str) -> None:
    assert not parse_labels(text).matches(WEB)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("b=2, a=1", "a=1,b=2"),
        ("x in (b,a,,b)", "x in (,a,b)"),
        ("x  notin ( a )", "x notin (a)"),
        ("y,!z,x==1,w!=2", "w!=2,x==1,y,!z"),
        ("a>1,b<2", "a>1,b<2"),
    ],
)
def test_selectors_print_in_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_labels(text)) == canonical


REGEX = "must start and end with an alphanumeric character (e.g. "


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a b",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a in (b,=)", "unable to parse requirement: found '=', expected: ',', or identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' "
            "operators, the value must be an integer",
        ),
    ],
)
def test_bad_syntax_is_refused_in_upstreams_words(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        parse_labels(text)


def test_bad_keys_and_values_are_named() -> None:
    with pytest.raises(ValueError, match="unable to parse") as key:
        parse_labels("-a=b")
    assert str(key.value).startswith(
        'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'
    )
    with pytest.raises(ValueError, match="unable to parse") as value:
        parse_labels("a=-b")
    assert str(value.value).startswith(
        'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be'
    )


def test_an_object_selects_by_labels_and_expressions() -> None:
    selector = labels_from_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "size", "operator": "NotIn", "values": ["9"]},
                {"key": "empty", "operator": "Exists"},
                {"key": "absent", "operator": "DoesNotExist", "values": []},
            ],
        }
    )
    assert str(selector) == "!absent,app=web,empty,size notin (9),tier in (back,front)"
    assert selector.matches(WEB)
    assert not selector.matches({**WEB, "absent": ""})


def test_no_object_selects_nothing_and_an_empty_one_everything() -> None:
    assert labels_from_object(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.empty
    assert labels_from_object({}) == EVERYTHING
    assert EVERYTHING.matches(WEB)
    assert EVERYTHING.empty
    assert EVERYTHING != NOTHING


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        (
            {"key": "a", "operator": "Is", "values": ["b"]},
            '"Is" is not a valid label selector operator',
        ),
        (
            {"key": "a", "operator": "In"},
            "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            {"key": "a", "operator": "Exists", "values": ["b"]},
            'values: Invalid value: ["b"]: values set must be empty for exists and does not exist',
        ),
    ],
)
def test_bad_expressions_are_refused(expression: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        labels_from_object({"matchExpressions": [expression]})


def test_several_problems_are_listed_together() -> None:
    with pytest.raises(ValueError, match=r"^\[key: Invalid value: .*, values\[0\]\[-\]: "):
        labels_from_object({"matchExpressions": [{"key": "-", "operator": "In", "values": ["-"]}]})


keys = st.from_regex(r"([a-z]{1,5}\.io/)?[a-c]{1,2}", fullmatch=True)
values = st.from_regex(r"([a-c][a-c._-]{0,2}[a-c])?", fullmatch=True)
requirements = st.one_of(
    st.builds(Requirement, keys, st.sampled_from(["exists", "!"]), st.just(())),
    st.builds(Requirement, keys, st.sampled_from(["=", "==", "!="]), st.tuples(values)),
    st.builds(
        Requirement,
        keys,
        st.sampled_from(["in", "notin"]),
        st.sets(values, min_size=1).map(lambda found: tuple(sorted(found))),
    ),
)


@given(st.lists(requirements, max_size=4))
def test_a_printed_selector_reads_back(found: list[Requirement]) -> None:
    selector = LabelRequirements(found)
    assert parse_labels(str(selector)) == selector


@given(st.dictionaries(keys, values), requirements)
def test_negations_are_opposites(labels: dict[str, str], requirement: Requirement) -> None:
    pairs = {"exists": "!", "!": "exists", "in": "notin", "notin": "in"}
    pairs |= {"=": "!=", "==": "!=", "!=": "="}
    opposite = requirement._replace(operator=pairs[requirement.operator])
    assert LabelRequirements([requirement]).matches(labels) is not LabelRequirements(
        [opposite]
    ).matches(labels)


@given(st.dictionaries(keys, values), st.dictionaries(keys, values))
def test_a_map_selects_its_supersets(wanted: dict[str, str], extra: dict[str, str]) -> None:
    assert labels_from_map(wanted).matches({**extra, **wanted})
    assert labels_from_map(wanted).matches(extra) == (wanted.items() <= extra.items())


def test_field_terms_are_compared_with_what_the_lookup_says() -> None:
    selector = parse_fields("status.phase!=Failed,spec.nodeName==n1,")
    assert selector.terms == (
        FieldTerm("spec.nodeName", "=", "n1"),
        FieldTerm("status.phase", "!=", "Failed"),
    )
    fields = {"status.phase": "Running", "spec.nodeName": "n1"}
    assert selector.matches(fields.__getitem__)
    fields["status.phase"] = "Failed"
    assert not selector.matches(fields.__getitem__)


def test_a_trailing_comma_is_no_term() -> None:
    assert parse_fields("metadata.name=foo,") == parse_fields("metadata.name=foo")
    assert parse_fields(",").empty


def test_exact_tells_the_one_possible_value() -> None:
    selector = parse_fields("metadata.name=foo,metadata.namespace!=bar,type=")
    assert selector.exact("metadata.name") == "foo"
    assert selector.exact("metadata.namespace") is None
    assert selector.exact("type") == ""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name", "invalid selector: 'name'; can't understand 'name'"),
        ("b=1,a", "invalid selector: 'b=1,a'; can't understand 'a'"),
        ("a=b=c", "invalid field selector: unescaped character in value: 61"),
        (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
        ("a=b\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_bad_field_selectors_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}$"):
        parse_fields(text)


terms = st.builds(
    FieldTerm,
    st.from_regex(r"[a-z]{1,4}(\.[a-z]{1,4})?", fullmatch=True),
    st.sampled_from(["=", "!="]),
    st.text(alphabet="ab,=\\!\n é"),
)


@given(st.lists(terms, max_size=4))
def test_a_printed_field_selector_reads_back(found: list[FieldTerm]) -> None:
    assert set(parse_fields(str(FieldSelector(found))).terms) == set(found)


@given(st.dictionaries(keys, values), st.lists(requirements, max_size=6))
def test_a_selector_is_the_conjunction_of_its_requirements(
    labels: dict[str, str], found: list[Requirement]
) -> None:
    each = all(LabelRequirements([one]).matches(labels) for one in found)
    assert LabelRequirements(found).matches(labels) is each


def test_comparisons_of_one_label_are_all_made() -> None:
    selector = parse_labels("a>3,a<9,a>5")
    matching = [number for number in range(12) if selector.matches({"a": str(number)})]
    assert matching == [6, 7, 8]
    assert not selector.matches({"a": "x"})
    assert not selector.matches({})


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")), st.lists(terms, max_size=6))
def test_a_field_selector_is_the_conjunction_of_its_terms(
    fields: dict[str, str], found: list[FieldTerm]
) -> None:
    def lookup(name: str) -> str:
        return fields.get(name, "")

    each = all(FieldSelector([one]).matches(lookup) for one in found)
    assert FieldSelector(found).matches(lookup) is each


@pytest.mark.parametrize("term", ["!k{}", "k{}!=x", "l0!=k{}", "l0 in (x,k{})", "l0 notin (k{})"])
def test_a_match_does_not_take_as_long_as_the_selector(term: str) -> None:
    labels = {f"l{i}": "x" for i in range(5)}
    long = LabelRequirements(
        parse_labels(",".join(term.format(i) for i in range(4_000))).requirements
    )
    began = time.process_time()
    assert all(long.matches(labels) for _ in range(2_000))
    assert time.process_time() - began < 0.5


def test_comparisons_take_all_integers_of_64_bits_and_no_others() -> None:
    least, most = -(2**63), 2**63 - 1
    below, above = parse_labels("size<0"), parse_labels("size>0")
    assert [below.matches({"size": str(each)}) for each in (least, least - 1)] == [True, False]
    assert [above.matches({"size": str(each)}) for each in (most, most + 1)] == [True, False]
    assert not below.matches({"size": "0"})
    assert not above.matches({"size": "0"})


@pytest.mark.parametrize("parse", [parse_labels, parse_fields])
def test_a_selector_has_at_most_so_many_requirements(
    parse: Callable[[str], LabelRequirements | FieldSelector],
) -> None:
    most = ",".join(["a=b"] * MOST_REQUIREMENTS)
    assert not parse(most).empty
    with pytest.raises(ValueError, match=r"^a selector has at most 4,000 requirements$"):
        parse(f"{most},a=b")
