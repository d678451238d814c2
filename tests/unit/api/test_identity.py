from kedge.api.identity import ResourceIdentity


def test_names_are_derived_from_kind_and_plural() -> None:
    lease = ResourceIdentity(plural="leases", kind="Lease", group="coordination.k8s.io")
    assert (lease.singular, lease.list_kind, lease.registry) == ("lease", "LeaseList", "leases")
    assert lease.api_version == "coordination.k8s.io/v1"
    assert ResourceIdentity(plural="pods", kind="Pod").api_version == "v1"


def test_given_names_are_kept() -> None:
    node = ResourceIdentity(
        plural="nodes", kind="Node", singular="no", list_kind="All", registry="minions"
    )
    assert (node.singular, node.list_kind, node.prefix) == ("no", "All", "/registry/minions/")


def test_keys_name_the_namespace_if_there_is_one() -> None:
    pods = ResourceIdentity(plural="pods", kind="Pod")
    assert pods.key("team", "web") == "/registry/pods/team/web"
    assert pods.key("", "web") == "/registry/pods/web"
