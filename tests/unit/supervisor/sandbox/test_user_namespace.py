import os

import pytest

from kedge.supervisor.sandbox import user_namespace


@pytest.mark.skipif(os.geteuid() != 0, reason="a map of several ids takes root")
def test_ids_of_the_namespace_are_the_machines_from_the_first_on() -> None:
    try:
        namespace = user_namespace.make(0x7000_0000)
    except OSError as error:
        pytest.skip(f"this machine has no user namespaces: {error}")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            user_namespace.enter(namespace, own_mounts=False)
            user_namespace.become_root()
            with open("/proc/self/uid_map") as file:
                found = file.read().split()
            code = int(found != ["0", str(0x7000_0000), str(user_namespace.LENGTH)])
        finally:
            os._exit(code)
    os.close(namespace)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_reason_of_an_obstacle_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(directory: str) -> None:
        raise OSError(1, "not here")

    monkeypatch.setattr(user_namespace, "_attempt", refused)
    assert user_namespace.obstacle("/none") == "not here"
    monkeypatch.setattr(user_namespace, "_attempt", lambda directory: None)
    assert user_namespace.obstacle("/none") == ""
    monkeypatch.setattr(user_namespace, "_attempt", lambda directory: os._exit(9))
    assert user_namespace.obstacle("/none") == "the attempt to make one ended with 9"
