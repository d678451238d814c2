from kedge.api.coordination_v1.lease import RESOURCE, Lease, LeaseSpec


def errors(**spec: object) -> list[str]:
    lease = RESOURCE.from_document({"spec": spec})
    return [str(error) for error in RESOURCE.strategy.validate(lease)]


def test_a_lease_lasts_some_time_and_counts_up() -> None:
    assert errors(leaseDurationSeconds=40, leaseTransitions=0) == []
    assert errors(leaseDurationSeconds=0, leaseTransitions=-1) == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ]


def test_fields_of_coordinated_leader_election_are_dropped() -> None:
    spec = {"preferredHolder": "a", "strategy": "OldestEmulationVersion", "leaseTransitions": 1}
    kept = RESOURCE.strategy.default(RESOURCE.from_document({"spec": spec}))
    assert RESOURCE.to_document(kept)["spec"] == {"leaseTransitions": 1}


def test_a_lease_given_back_says_so_on_the_wire() -> None:
    document = RESOURCE.to_document(Lease(spec=LeaseSpec(holderIdentity="", leaseTransitions=0)))
    assert document["spec"] == {"holderIdentity": "", "leaseTransitions": 0}


def test_a_put_makes_a_lease_but_never_overwrites_one_blindly() -> None:
    assert RESOURCE.strategy.allows_create_on_update
    assert not RESOURCE.strategy.allows_unconditional_update
