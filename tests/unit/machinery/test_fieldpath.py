"""Paths to what pods are told of themselves: parse of print is identity."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kedge.machinery.fieldpath import (
    FULL_FORM,
    OWNER_FORM,
    PARTIAL_FORM,
    ContainerResourcePath,
    FieldPath,
    MalformedFieldPath,
    OwnerPath,
    parse,
    parse_partial,
)

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,10}[a-z0-9])?", fullmatch=True)
RESOURCES = st.sampled_from(
    ["cpu", "memory", "storage", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "a.b/c.d"]
)
BOUNDS = st.sampled_from(["limits", "requests"])
LISTS = st.sampled_from(["containers", "initContainers"])
AMOUNTS = st.builds(ContainerResourcePath, BOUNDS, RESOURCES, NAMES, LISTS)
KEYS = st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"]))


@given(AMOUNTS)
def test_full_selector_reads_as_it_is_written(amount: ContainerResourcePath) -> None:
    assert parse(str(amount)) == amount
    assert parse(f".{amount}") == amount


@given(BOUNDS, RESOURCES)
def test_partial_selector_reads_as_it_is_written(bound: str, resource: str) -> None:
    amount = ContainerResourcePath(bound, resource)
    assert parse_partial(str(amount)) == amount
    assert parse_partial(f".{amount}") == amount


@pytest.mark.parametrize("attribute", ["apiVersion", "kind", "name", "uid"])
def test_owner_reads_as_it_is_written(attribute: str) -> None:
    assert parse(str(OwnerPath(attribute))) == OwnerPath(attribute)


@given(st.sampled_from(["metadata.labels", "metadata.annotations"]), KEYS)
@example("metadata.annotations", "foo.bar/more'complicated]example[with'characters\"to-escape")
@example("metadata.annotations", "']['")
def test_any_key_without_a_backslash_can_be_written(name: str, key: str) -> None:
    path = parse(str(FieldPath.keyed(name, key)))
    assert isinstance(path, FieldPath)
    assert (path.name, path.key) == (name, key)
    assert path.escapes == any(each in key for each in "[]'")


@given(st.text())
@example("metadata.labels['a")
@example("['a']")
@example("metadata.annotations['a'b']['c']")
def test_no_letter_of_a_field_is_lost(text: str) -> None:
    assert str(FieldPath.parsed(text)) == text


@pytest.mark.parametrize(
    ("text", "name", "key"),
    [
        ("metadata.name", "metadata.name", None),
        ("metadata.labels['a']", "metadata.labels", "a"),
        ("metadata.annotations['']", "metadata.annotations", ""),
        (r"metadata.annotations['a\'b\[c\]d']", "metadata.annotations", "a'b[c]d"),
        ("metadata.annotations['a'b']", "metadata.annotations", "a'b"),
        (r"metadata.annotations['a\'b[c']", "metadata.annotations", r"a\'b[c"),
        (r"metadata.annotations['a\nb']", "metadata.annotations", r"a\nb"),
        (r"metadata.annotations['a\']", "metadata.annotations", "a\\"),
        ("metadata.annotations['a'", "metadata.annotations['a'", None),
        ('metadata.annotations["a"]', 'metadata.annotations["a"]', None),
        ("spec.containers['c']", "spec.containers", "c"),
    ],
)
def test_subscript_is_split_off_as_kubernetes_does(text: str, name: str, key: str | None) -> None:
    path = parse(text)
    assert isinstance(path, FieldPath)
    assert (path.name, path.key) == (name, key)


@pytest.mark.parametrize(
    ("text", "escapes"),
    [(r"x['a\'b']", True), ("x['a'b']", False), (r"x['a\'b[c']", False), (r"x['a\b']", False)],
)
def test_escapes_count_only_where_all_are_there(text: str, escapes: bool) -> None:
    assert FieldPath.parsed(text).escapes is escapes


@pytest.mark.parametrize(
    "text",
    [
        """spec.containers[?(@.name=='web')].resources.limits.cpu""",
        """.spec.containers[?(@.name=="web")].resources.limits.cpu""",
        """spec.containers[ ? ( @.name == "web" ) ].resources.limits.cpu""",
    ],
)
def test_quotes_spaces_and_the_first_dot_are_free(text: str) -> None:
    assert parse(text) == ContainerResourcePath("limits", "cpu", "web")


def test_dots_of_a_resource_may_be_escaped_as_in_json_paths() -> None:
    assert parse_partial(r"resources.limits.example\.com/gpu") == ContainerResourcePath(
        "limits", "example.com/gpu"
    )


@pytest.mark.parametrize(
    "text",
    [
        "spec.containers[0].resources.limits.cpu",
        "spec.containers[*].resources.limits.cpu",
        "spec.containers[0:1].resources.limits.cpu",
        "spec.containers[0,1].resources.limits.cpu",
        'spec.containers[?(@.image=="x")].resources.limits.cpu',
        'spec.containers[?(@.name!="c")].resources.limits.cpu',
        'spec.containers[?(@.name=="c)].resources.limits.cpu',
        'spec.containers[?(@.name=="c"].resources.limits.cpu',
        'spec.containers[?(@.name=="c").resources.limits.cpu',
        """spec.containers[?(@.name=="c')].resources.limits.cpu""",
        'spec.containers[?(@.name=="")].resources.limits.cpu',
        'spec.containers[?(@.name=="c")].resources.limits',
        'spec.containers[?(@.name=="c")].resources.limits.',
        'spec.containers[?(@.name=="c")].resources.limits.cpu.x',
        'spec.containers[?(@.name=="c")].resources.limit.cpu',
        'spec.containers[?(@.name=="c")].image',
    ],
)
def test_what_does_not_name_a_container_is_no_selector(text: str) -> None:
    with pytest.raises(MalformedFieldPath) as raised:
        parse(text)
    assert str(raised.value) == FULL_FORM


@pytest.mark.parametrize("text", ["..spec.containers[0]", "spec.container[0]", ".metadata.name"])
def test_what_is_not_even_alike_is_left_to_kubernetes(text: str) -> None:
    assert parse(text) == FieldPath(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "limits.cpu",
        "resources.limit.cpu",
        "resources.limits",
        "resources.limits.cpu.x",
        "resources.limits.example.com",
        'spec.containers[?(@.name=="c")].resources.limits.cpu',
    ],
)
def test_partial_selector_has_one_form(text: str) -> None:
    with pytest.raises(MalformedFieldPath) as raised:
        parse_partial(text)
    assert str(raised.value) == PARTIAL_FORM


def test_owner_is_the_controller_only() -> None:
    with pytest.raises(MalformedFieldPath) as raised:
        parse("metadata.ownerReferences[0].name")
    assert str(raised.value) == OWNER_FORM
