from kedge.api.rbac_v1.cluster_role_binding import RESOURCE, ClusterRoleBinding
from kedge.api.rbac_v1.role_binding import RoleRef, Subject


def errors(kind: str, *subjects: Subject) -> list[str]:
    obj = ClusterRoleBinding(roleRef=RoleRef(kind=kind, name="admin"), subjects=subjects)
    return [str(error) for error in RESOURCE.strategy.validate(RESOURCE.strategy.default(obj))]


def test_only_cluster_roles_are_given_everywhere() -> None:
    assert errors("ClusterRole") == []
    assert errors("Role") == [
        'roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"'
    ]


def test_a_service_account_is_named_with_its_namespace() -> None:
    assert errors("ClusterRole", Subject(kind="ServiceAccount", name="bot")) == [
        "subjects[0].namespace: Required value"
    ]
