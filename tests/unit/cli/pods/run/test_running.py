"""What `kedge run` says while a container does not start."""

from typing import Any

import pytest

from kedge.cli.failure import Failure
from kedge.cli.pods.run.running import PodProgress


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"status": {"containerStatuses": [{"state": state}]}}


def test_a_failed_pull_is_told_once_without_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = PodProgress("web")
    assert seen.state({"status": {}}) == {}
    seen.state(waiting("ContainerCreating"))
    assert seen.text == "pod/web: ContainerCreating"
    for _ in range(2):
        seen.state(waiting("ErrImagePull", "no such image"))
    assert capsys.readouterr().err == "waiting for pod/web: ErrImagePull: no such image\n"


def test_a_container_that_can_never_start_ends_the_wait() -> None:
    with pytest.raises(Failure, match="InvalidImageName: bad"):
        PodProgress("web").state(waiting("InvalidImageName", "bad"))
