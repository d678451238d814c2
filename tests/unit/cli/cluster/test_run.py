import pytest

from kedge.cli.cluster.run import execute


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", 'test "$KUBECONFIG" = /here'], 0),
        (["sh", "-c", "kill -9 $$"], 137),
        (["/nonexistent/command"], 127),
        (["/"], 126),
    ],
)
def test_the_exit_code_is_that_of_a_shell(line: list[str], code: int) -> None:
    assert execute(line, {"PATH": "/usr/bin:/bin", "KUBECONFIG": "/here"}) == code
