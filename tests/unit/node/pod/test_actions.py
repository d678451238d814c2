from typing import get_args

from kedge.api.core_v1.pod.spec import PodSpec
from kedge.node.pod.actions import Action, ContainerKind, StopContainer, StopContainers


def test_kinds_of_containers_are_the_lists_of_the_spec() -> None:
    assert all(hasattr(PodSpec(), kind) for kind in ContainerKind)


def test_equal_actions_are_interchangeable() -> None:
    one = StopContainers((StopContainer("id", "ctr", 1, "why"),))
    assert {one, StopContainers((StopContainer("id", "ctr", 1, "why"),))} == {one}
    assert all(each.__struct_config__.frozen for each in get_args(Action))
