from kedge.api.resource_v1.resource_claim_template import RESOURCE, ResourceClaimTemplate

STRATEGY = RESOURCE.strategy


def template(class_: str, **labels: str) -> ResourceClaimTemplate:
    requests = [{"name": "a", "exactly": {"deviceClassName": class_}}]
    spec = {"metadata": {"labels": labels}, "spec": {"devices": {"requests": requests}}}
    return STRATEGY.default(RESOURCE.from_document({"spec": spec}))


def test_a_template_is_validated_as_the_claim_that_it_makes() -> None:
    [label, class_] = [str(error) for error in STRATEGY.validate(template("", a="-"))]
    assert label.startswith('spec.metadata.labels: Invalid value: "-"')
    assert class_ == "spec.spec.devices.requests[0].exactly.deviceClassName: Required value"


def test_a_template_cannot_be_changed() -> None:
    [error] = STRATEGY.validate_update(template("b"), template("c"))
    assert (error.field, error.body[-18:]) == ("spec", "field is immutable")


def test_requests_of_a_template_ask_for_one_device_by_default() -> None:
    [request] = template("c").spec.spec.devices.requests
    assert request.exactly is not None
    assert (request.exactly.allocationMode, request.exactly.count) == ("ExactCount", 1)
