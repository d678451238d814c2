import msgspec
import pytest

from kedge.node.runtime.cri.streams import exit_code
from kedge.node.runtime.runtime import RuntimeFailure


def test_the_exit_code_is_in_the_status() -> None:
    assert exit_code(b'{"metadata":{},"status":"Success"}') == 0
    causes = [{"reason": "ExitCode", "message": "3"}]
    failure = {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    assert exit_code(msgspec.json.encode(failure)) == 3


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b'{"status": "Failure", "message": "no such program"}', "no such program"),
        (b"not JSON", "not JSON"),
        (b"", "without an exit code"),
    ],
)
def test_a_command_that_did_not_run_is_a_failure(said: bytes, message: str) -> None:
    with pytest.raises(RuntimeFailure, match=message):
        exit_code(said)
