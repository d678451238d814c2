from msgspec.structs import replace

from kedge.api.rbac_v1.role_binding import RESOURCE, RoleBinding, RoleRef, Subject

GROUP = "rbac.authorization.k8s.io"
SUBJECTS = [
    Subject(kind="User", name="jane"),
    Subject(kind="Group", name="team"),
    Subject(kind="ServiceAccount", name="bot", namespace="ci"),
]
BINDING = RoleBinding(roleRef=RoleRef(kind="Role", name="reader"), subjects=SUBJECTS)


def errors(obj: RoleBinding) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate(obj)]


def test_groups_are_filled_in() -> None:
    obj = RESOURCE.strategy.default(BINDING)
    assert obj.roleRef.apiGroup == GROUP
    assert [subject.apiGroup for subject in obj.subjects] == [GROUP, GROUP, ""]
    assert errors(obj) == []


def test_who_and_what_must_be_known_kinds() -> None:
    obj = RoleBinding(
        roleRef=RoleRef(apiGroup=GROUP, kind="Deployment"),
        subjects=[Subject(kind="Robot"), Subject(kind="User", name="a", apiGroup="x")],
    )
    assert errors(obj) == [
        'roleRef.kind: Unsupported value: "Deployment": supported values: "Role", "ClusterRole"',
        "roleRef.name: Required value",
        "subjects[0].name: Required value",
        'subjects[0].kind: Unsupported value: "Robot": '
        'supported values: "ServiceAccount", "User", "Group"',
        f'subjects[1].apiGroup: Unsupported value: "x": supported values: "{GROUP}"',
    ]


def test_a_binding_gives_one_role_for_ever() -> None:
    old = RESOURCE.strategy.default(BINDING)
    new = replace(old, roleRef=replace(old.roleRef, name="writer"))
    (error,) = RESOURCE.strategy.validate_update(new, old)
    assert str(error) == (
        'roleRef: Invalid value: {"APIGroup":"rbac.authorization.k8s.io",'
        '"Kind":"Role","Name":"writer"}: cannot change roleRef'
    )


def test_the_columns_sort_subjects_by_kind() -> None:
    row = {column.name: column.cell(BINDING) for column in RESOURCE.presentation.columns}
    assert row["Role"] == "Role/reader"
    assert (row["Users"], row["Groups"], row["ServiceAccounts"]) == ("jane", "team", "ci/bot")
