from kedge.supervisor.sandbox import namespaces
from kedge.supervisor.spec import BindMount, ContainerSpec, DeviceNode, SandboxSpec


def test_specs_travel_as_json_so_their_keys_are_the_protocol() -> None:
    """A change here needs another number in `supervisor.PROTOCOL`."""
    assert {*BindMount.__annotations__} == {
        *("source", "part", "target", "read_only", "recursive", "propagation"),
    }
    assert {*DeviceNode.__annotations__} == {"source", "target", "permissions"}
    assert {*SandboxSpec.__annotations__} == {
        *("hostname", "host_network", "host_pid", "host_ipc", "shared_pid", "cgroup_parent"),
        *("sysctls", "first_id", "files"),
    }
    assert {*ContainerSpec.__annotations__} == {
        *("lowers", "hidden", "concealed", "shown", "binds", "devices", "argv", "env"),
        *("directory", "user", "group", "groups", "capabilities", "seccomp"),
        *("no_new_privileges", "privileged", "read_only", "masked", "pid", "pid_target"),
        *("terminal", "stdin", "stdin_once", "log", "stop_signal", "resources"),
        *("oom_score_adj", "shortfalls"),
    }
    assert namespaces.first_id_of({}) == 0  # type: ignore[typeddict-item]
