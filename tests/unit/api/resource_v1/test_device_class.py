from kedge.api.resource_v1.device_class import RESOURCE


def test_a_class_is_validated_as_kubernetes_does() -> None:
    spec = {"selectors": [{}], "config": [{}], "extendedResourceName": "cpu"}
    obj = RESOURCE.from_document({"metadata": {"name": "x"}, "spec": spec})
    assert [str(error) for error in RESOURCE.strategy.validate(obj)] == [
        "spec.selectors[0].cel: Required value",
        "spec.config[0].opaque: Required value",
        'spec.extendedResourceName: Invalid value: "cpu": must be a valid extended resource name',
    ]
