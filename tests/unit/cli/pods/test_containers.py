"""Which pod and which container is meant."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.pods import containers


def pod(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "annotations": annotations},
        "spec": {
            "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}],
        },
    }


def test_the_first_container_is_the_usual_one_and_the_user_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert containers.usual(pod()) == "a"
    assert capsys.readouterr().err == 'Defaulted container "a" out of: a, b, i (init)\n'


def test_a_pod_may_say_which_container_is_the_usual_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert containers.usual(pod(**{containers.DEFAULT: "b"})) == "b"
    assert capsys.readouterr().err == ""


def test_all_containers_come_in_the_order_of_their_start() -> None:
    assert containers.every(pod()) == ["i", "a", "b"]


def test_a_container_that_is_not_there_is_refused() -> None:
    assert containers.check(pod(), "i") == "i"
    with pytest.raises(Failure, match=r"container z is not valid for pod p out of: a, b, i"):
        containers.check(pod(), "z")
