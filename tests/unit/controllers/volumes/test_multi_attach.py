"""What pods are told whose volume is attached elsewhere."""

import pytest

from kedge.api.core_v1.pod.pod import RESOURCE, Pod
from kedge.controllers.volumes.multi_attach import waiting_message


def pod(name: str, namespace: str = "default") -> Pod:
    return RESOURCE.from_document({"metadata": {"name": name, "namespace": namespace}})


@pytest.mark.parametrize(
    ("users", "reason"),
    [
        (
            [],
            "exclusively attached to one node, waiting on detach before it can be attached to"
            " another node",
        ),
        ([pod("b"), pod("a")], "used by pod(s) a, b"),
        ([pod("a"), pod("x", "theirs")], "used by pod(s) a and 1 pod(s) in different namespaces"),
        ([pod("x", "theirs")], "used by 1 pod(s) in different namespaces"),
    ],
)
def test_pods_of_other_namespaces_are_counted_and_not_named(users: list[Pod], reason: str) -> None:
    assert waiting_message("pv", pod("q"), users) == (
        f'Waiting for detach for volume "pv" Volume is already {reason}'
    )
