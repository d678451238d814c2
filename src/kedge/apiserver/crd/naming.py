"""Which names a CustomResourceDefinition gets, and the conditions that say so."""

from collections.abc import Iterable

import msgspec

from kedge.api.apiextensions_v1.definition import (
    APPROVAL,
    CustomResourceDefinition,
    CustomResourceDefinitionCondition,
    CustomResourceDefinitionNames,
    condition,
    is_established,
    schema_of_version,
)
from kedge.api.apiextensions_v1.definition_rules import is_address, is_protected
from kedge.api.apiextensions_v1.structural import validate_structural
from kedge.machinery.errors import FieldError

Condition = CustomResourceDefinitionCondition


def accepted_names(
    crd: CustomResourceDefinition, others: Iterable[CustomResourceDefinition]
) -> tuple[CustomResourceDefinitionNames, list[Condition]]:
    """The names that are free or already its own, and the conditions of the definition.

    A name once accepted stays, whatever is asked for later, until another is found free.
    A condition whose status is new has no lastTransitionTime; the caller knows the time.
    """
    words, resources = crd.spec.names, _Taken(crd, others)
    had = crd.status.acceptedNames
    got = msgspec.structs.replace(had, categories=words.categories)
    conflict: tuple[str, str] | None = None
    for reason, field, used in (
        ("PluralConflict", "plural", resources.plurals),
        ("SingularConflict", "singular", resources.plurals),
        ("ShortNamesConflict", "shortNames", resources.plurals),
        ("KindConflict", "kind", resources.kinds),
        ("ListKindConflict", "listKind", resources.kinds),
    ):
        wanted, held = getattr(words, field), getattr(had, field)
        if taken := _taken(wanted, held, used):
            conflict = reason, taken
        else:
            got = msgspec.structs.replace(got, **{field: wanted})
    return got, _conditions(crd, conflict)


class _Taken:
    """The names in use in a group, its own among them."""

    def __init__(
        self, crd: CustomResourceDefinition, others: Iterable[CustomResourceDefinition]
    ) -> None:
        self.plurals: set[str] = set()
        self.kinds: set[str] = set()
        for each in (crd, *others):
            if each.spec.group == crd.spec.group:
                words = each.status.acceptedNames
                self.plurals |= {words.plural, words.singular, *words.shortNames}
                self.kinds |= {words.kind, words.listKind}


def _taken(wanted: str | Iterable[str], held: str | Iterable[str], used: set[str]) -> str:
    """Return the message about names that other definitions use; empty if all are free or held."""
    asked = (wanted,) if isinstance(wanted, str) else tuple(wanted)
    own = (held,) if isinstance(held, str) else tuple(held)
    messages = [f'"{name}" is already in use' for name in asked if name not in own and name in used]
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]" if messages else ""


def _conditions(crd: CustomResourceDefinition, conflict: tuple[str, str] | None) -> list[Condition]:
    reason, message = conflict or ("NoConflicts", "no conflicts found")
    status = "False" if conflict else "True"
    found = [
        Condition(type="NamesAccepted", status=status, reason=reason, message=message),
        _established(crd, accepted=conflict is None),
    ]
    if (unstructured := _non_structural(crd)) is not None:
        found.append(unstructured)
    if is_protected(crd.spec.group):
        found.append(_approved(crd))
    computed = {each.type for each in found} | {"NonStructuralSchema"}
    kept = [each for each in crd.status.conditions if each.type not in computed]
    return [_timed(crd, each) for each in found] + kept


def _established(crd: CustomResourceDefinition, *, accepted: bool) -> Condition:
    """Once established, a kind stays so whatever it is renamed to."""
    if accepted or is_established(crd):
        return Condition(
            type="Established",
            status="True",
            reason="InitialNamesAccepted",
            message="the initial names have been accepted",
        )
    return Condition(
        type="Established",
        status="False",
        reason="NotAccepted",
        message="not all names are accepted",
    )


def _non_structural(crd: CustomResourceDefinition) -> Condition | None:
    """None if all is well. Only definitions that another server accepted can have one."""
    errors: list[FieldError] = []
    if crd.spec.preserveUnknownFields:
        errors.append(FieldError.invalid("spec.preserveUnknownFields", True, "must be false"))
    for i, version in enumerate(crd.spec.versions):
        schema = schema_of_version(version)
        if schema is not None:
            path = f"spec.versions[{i}].schema.openAPIV3Schema"
            errors += validate_structural(schema, path)
    if not errors:
        return None
    texts = list(dict.fromkeys(map(str, errors)))
    message = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Condition(
        type="NonStructuralSchema", status="True", reason="Violations", message=message
    )


def _approved(crd: CustomResourceDefinition) -> Condition:
    written = crd.metadata.annotations.get(APPROVAL, "")
    must = f'protected groups must have approval annotation "{APPROVAL}"'
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not written:
        status, reason, message = "False", "MissingAnnotation", f"{must}, {see}"
    elif written.startswith("unapproved"):
        status, reason = "False", "UnapprovedAnnotation"
        message = f'not approved: "{written}"'
    elif is_address(written):
        status, reason, message = "True", "ApprovedAnnotation", f"approved in {written}"
    else:
        status, reason = "False", "InvalidAnnotation"
        message = f'{must} with either a URL or a reason starting with "unapproved", {see}'
    return Condition(
        type="KubernetesAPIApprovalPolicyConformant", status=status, reason=reason, message=message
    )


def _timed(crd: CustomResourceDefinition, new: Condition) -> Condition:
    old = condition(crd, new.type)
    if old is None or old.status != new.status:
        return new
    return msgspec.structs.replace(new, lastTransitionTime=old.lastTransitionTime)
