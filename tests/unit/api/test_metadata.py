import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kedge.api import metadata
from kedge.api.model import ManagedFieldsEntry, ObjectMeta, OwnerReference
from kedge.machinery import names
from kedge.machinery.errors import FieldError

GOOD = ObjectMeta(
    name="web-1",
    generateName="web-",
    namespace="default",
    uid="u",
    resourceVersion="7",
    generation=2,
    labels={"app.kubernetes.io/name": "web"},
    annotations={"Example.com/Note": "anything: goes"},
    ownerReferences=[OwnerReference(apiVersion="apps/v1", kind="ReplicaSet", name="web", uid="o")],
    finalizers=["example.com/hold"],
    managedFields=[ManagedFieldsEntry(manager="kubectl", operation="Apply", fieldsType="FieldsV1")],
)


def errors(meta: ObjectMeta, *, namespaced: bool = True) -> list[str]:
    found = metadata.validate(meta, namespaced=namespaced, check_name=names.dns_subdomain)
    return [str(error) for error in found]


def changes(**fields: object) -> list[str]:
    return [str(error) for error in metadata.validate_update(replace(GOOD, **fields), GOOD)]


def test_ordinary_metadata_is_fine_and_may_stay_as_it_is() -> None:
    assert errors(GOOD) == []
    assert changes() == []


def test_an_object_needs_a_name_and_a_namespace() -> None:
    assert errors(ObjectMeta()) == [
        "metadata.name: Required value: name or generateName is required",
        "metadata.namespace: Required value",
    ]


def test_a_cluster_wide_object_has_no_namespace() -> None:
    assert errors(GOOD, namespaced=False) == [
        "metadata.namespace: Forbidden: not allowed on this type"
    ]


def test_everything_wrong_is_told_at_once() -> None:
    meta = replace(GOOD, name="Web", generateName="Web-", namespace="a.b", generation=-1)
    fields = [error.split(":")[0] for error in errors(meta)]
    assert fields == [
        "metadata.generateName",
        "metadata.name",
        "metadata.namespace",
        "metadata.generation",
    ]


def test_labels_are_blamed_as_a_whole_and_quote_what_is_wrong() -> None:
    found = errors(replace(GOOD, labels={"a/b/c": "x", "ok": "not ok"}))
    assert [text.split(":")[:3] for text in found] == [
        ["metadata.labels", " Invalid value", ' "a/b/c"'],
        ["metadata.labels", " Invalid value", ' "not ok"'],
    ]


@pytest.mark.parametrize(("filler", "fits"), [("x", True), ("ä", False)])
def test_annotations_together_are_bounded_in_bytes(filler: str, fits: bool) -> None:
    room = metadata.ANNOTATIONS_LIMIT - 1
    found = errors(replace(GOOD, annotations={"k": filler * room}))
    too_long = "metadata.annotations: Too long: may not be more than 262144 bytes"
    assert found == ([] if fits else [too_long])


def test_only_one_owner_may_be_the_controller() -> None:
    owner = replace(GOOD.ownerReferences[0], controller=True)
    (error,) = errors(replace(GOOD, ownerReferences=[owner, replace(owner, name="other")]))
    assert error.endswith(
        "Only one reference can have Controller set to true. "
        'Found "true" in references for ReplicaSet/web and ReplicaSet/other'
    )


def test_an_object_has_a_limited_number_of_owners() -> None:
    owners = [replace(GOOD.ownerReferences[0], uid=str(i)) for i in range(1001)]
    assert errors(replace(GOOD, ownerReferences=owners[:1000])) == []
    (error,) = errors(replace(GOOD, ownerReferences=owners))
    assert error == "metadata.ownerReferences: Too many: 1001: must have at most 1000 items"


def test_an_owner_must_be_named_in_full_and_cannot_be_an_event() -> None:
    assert [e.split(":")[0] for e in errors(replace(GOOD, ownerReferences=[OwnerReference()]))] == [
        f"metadata.ownerReferences.{field}" for field in ("apiVersion", "kind", "name", "uid")
    ]
    event = OwnerReference(apiVersion="v1", kind="Event", name="e", uid="u")
    (error,) = errors(replace(GOOD, ownerReferences=[event]))
    assert error.endswith("/v1, Kind=Event is disallowed from being an owner")


def test_finalizers_need_a_domain_unless_standard() -> None:
    assert errors(replace(GOOD, finalizers=["kubernetes", "plain"])) == [
        'metadata.finalizers[1]: Invalid value: "plain": '
        "name is neither a standard finalizer name nor is it fully qualified"
    ]
    custom = metadata.validate(
        replace(GOOD, finalizers=["plain"]),
        namespaced=True,
        check_name=names.dns_subdomain,
        check_finalizer=names.finalizer,
    )
    assert list(custom) == []


def test_dependents_cannot_be_orphaned_and_deleted() -> None:
    (error,) = errors(replace(GOOD, finalizers=["orphan", "foregroundDeletion"]))
    assert error.endswith("finalizer orphan and foregroundDeletion cannot be both set")


def test_managed_fields_name_their_operation() -> None:
    entry = ManagedFieldsEntry(manager="a\x07", operation="Guess", fieldsType="V9")
    assert errors(replace(GOOD, managedFields=[entry])) == [
        'metadata.managedFields[0].operation: Invalid value: "Guess": must be `Apply` or `Update`',
        'metadata.managedFields[0].fieldsType: Invalid value: "V9": must be `FieldsV1`',
        'metadata.managedFields[0].manager: Invalid value: "a\\a": '
        "invalid character U+0007 (at position 1)",
    ]


@pytest.mark.parametrize("field", ["name", "namespace", "uid", "creationTimestamp"])
def test_identity_cannot_change(field: str) -> None:
    assert changes(**{field: "other"}) == [
        f'metadata.{field}: Invalid value: "other": field is immutable'
    ]


def test_an_update_cannot_start_a_deletion() -> None:
    when = "2026-01-01T00:00:00Z"
    assert changes(deletionTimestamp=when, deletionGracePeriodSeconds=0) == [
        f'metadata.deletionTimestamp: Invalid value: "{when}": field is immutable',
        "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable",
    ]


def test_an_update_says_what_it_is_based_on_and_never_counts_back() -> None:
    assert changes(resourceVersion="", generation=1) == [
        'metadata.resourceVersion: Invalid value: "": must be specified for an update',
        "metadata.generation: Invalid value: 1: must not be decremented",
    ]


def test_nothing_new_may_hold_back_an_object_that_is_being_deleted() -> None:
    old = replace(GOOD, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    new = replace(old, finalizers=["a/d", "a/b", "a/c"])
    (error,) = metadata.validate_update(new, old)
    assert str(error) == (
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being "
        'deleted, found new finalizers []string{"a/c", "a/d"}'
    )
    assert list(metadata.validate_update(replace(old, finalizers=[]), old)) == []


@given(st.dictionaries(st.text(max_size=80), st.text(max_size=80), max_size=3))
def test_labels_are_refused_exactly_when_a_key_or_value_is(labels: dict[str, str]) -> None:
    bad = any(names.qualified_name(k) or names.label_value(v) for k, v in labels.items())
    assert bool(list(metadata.validate_labels(labels, "x"))) is bad


def generated(*, is_sound: bool) -> st.SearchStrategy[ObjectMeta]:
    """Metadata in which a first check finds nothing, or anything."""

    def values(sound: list[str], *others: str) -> st.SearchStrategy[str]:
        return st.sampled_from(sound if is_sound else [*sound, *others])

    keys = values(["a", "example.com/a", "kubernetes.io/b"], "no key!")
    owner = st.builds(
        OwnerReference,
        apiVersion=values(["v1"], ""),
        kind=values(["Pod"], "Event"),
        name=st.just("o"),
        uid=values(["1"], ""),
        controller=st.just(False) if is_sound else st.booleans(),
    )
    return st.builds(
        ObjectMeta,
        name=st.sampled_from(["a", "No Name!"]),
        namespace=values(["n"], "", "No!"),
        resourceVersion=st.sampled_from(["1", ""]),
        generation=st.sampled_from([0, 1]) if is_sound else st.sampled_from([0, -1]),
        deletionTimestamp=st.sampled_from(["", "2030-01-01T00:00:00Z"]),
        labels=st.dictionaries(keys, values(["x"], "no value!"), max_size=2),
        annotations=st.dictionaries(keys, st.text(max_size=3), max_size=2),
        ownerReferences=st.lists(owner, max_size=2),
        finalizers=st.lists(values(["orphan", "a/b"], "foregroundDeletion", "c"), max_size=2),
        managedFields=st.lists(
            st.builds(ManagedFieldsEntry, operation=values(["Apply"], "Eat")), max_size=1
        ),
    )


@given(generated(is_sound=True), generated(is_sound=False))
def test_sound_parts_make_no_difference_to_further_checks(new: ObjectMeta, old: ObjectMeta) -> None:
    def further(meta: ObjectMeta) -> list[FieldError]:
        check = metadata.validate(meta, namespaced=True, check_name=names.dns_label)
        return [*check, *metadata.validate_update(meta, old)]

    assert not [*metadata.validate(new, namespaced=True, check_name=names.path_segment)]
    assert further(metadata.without_sound_parts(new)) == further(new)
