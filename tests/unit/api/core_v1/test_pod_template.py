from kedge.api.core_v1.pod_template import RESOURCE


def test_columns_show_containers_images_and_labels() -> None:
    containers = [{"name": "a", "image": "i:1"}, {"name": "b", "image": "i:2"}]
    template = {"metadata": {"labels": {"z": "1", "a": "2"}}, "spec": {"containers": containers}}
    obj = RESOURCE.from_document({"metadata": {"name": "x"}, "template": template})
    cells = [column.cell(obj) for column in RESOURCE.presentation.columns]
    assert cells == ["x", "a,b", "i:1,i:2", "a=2,z=1"]


def test_warnings_are_those_of_the_pods() -> None:
    template = {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}
    obj = RESOURCE.from_document({"metadata": {"name": "x"}, "template": template})
    assert list(RESOURCE.strategy.warnings(obj)) == [
        "template.spec.nodeSelector[beta.kubernetes.io/os]: "
        'deprecated since v1.14; use "kubernetes.io/os" instead'
    ]
