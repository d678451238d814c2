from kedge.api.model import ObjectMeta
from kedge.api.scheduling_v1.priority_class import RESOURCE, PriorityClass


def named(name: str, value: int) -> PriorityClass:
    return RESOURCE.strategy.default(PriorityClass(metadata=ObjectMeta(name=name), value=value))


def errors(obj: PriorityClass) -> list[str]:
    return [str(error) for error in RESOURCE.strategy.validate_new(obj)]


def test_users_stay_below_the_system() -> None:
    assert errors(named("high", 1_000_000_000)) == []
    assert errors(named("higher", 1_000_000_001)) == [
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    ]


def test_system_names_are_reserved() -> None:
    assert errors(named("system-node-critical", 2_000_001_000)) == []
    why = "priority class names with 'system-' prefix are reserved for system use only. error: "
    assert errors(named("system-mine", 1)) == [
        f"metadata.name: Forbidden: {why}system-mine is not a known system priority class"
    ]
    assert errors(named("system-cluster-critical", 1)) == [
        f"metadata.name: Forbidden: {why}"
        "value of system-cluster-critical PriorityClass must be 2000000000"
    ]


def test_what_pods_were_promised_stays() -> None:
    old = named("a", 0)
    new = PriorityClass(value=1, preemptionPolicy="Never")
    assert [str(error) for error in RESOURCE.strategy.validate_update(new, old)] == [
        "value: Forbidden: may not be changed in an update.",
        'preemptionPolicy: Invalid value: "Never": field is immutable',
    ]


def test_a_value_of_zero_is_written_out() -> None:
    assert RESOURCE.to_document(named("a", 0))["value"] == 0
