from collections.abc import Sequence
from pathlib import Path

import pytest

from kedge.node.images.host import HiddenPath, HostImage
from kedge.node.images.image import HOST_IMAGE, LocalImage
from kedge.node.images.oci import ImageConfig
from kedge.node.runtime import supervisor_spec
from kedge.node.runtime.runtime import (
    ContainerConfig,
    ContainerLimits,
    ContainerMount,
    ContainerSecurity,
    DnsConfig,
    RuntimeFailure,
    SandboxConfig,
)
from kedge.node.runtime.supervisor_spec import ContainerPlace
from kedge.supervisor.machine_capabilities import ADVISORY, FULL, PLAIN, USERNS, of_level
from kedge.supervisor.spec import ContainerSpec

CONFIG = ImageConfig(
    env=("PATH=/bin", "MODE=image"),
    entrypoint=("/entry",),
    cmd=("default",),
    working_dir="/srv",
    stop_signal="SIGQUIT",
)


@pytest.fixture
def image(tmp_path: Path) -> LocalImage:
    layer = tmp_path / "layer"
    (layer / "etc").mkdir(parents=True)
    (layer / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:\n")
    (layer / "etc/group").write_text("app:x:1001:\nextra:x:44:app\n")
    return LocalImage("sha256:1", "app", config=CONFIG, layers=(layer,))


def place(tmp_path: Path, level: str = FULL) -> ContainerPlace:
    files = tmp_path / "sandbox"
    return ContainerPlace(of_level(level), "/logs/pod", files, "web", [Path("/state")], HIDES)


HIDES = HostImage(hidden=(HiddenPath("/home", "homes"),), shown=("/home/a",))


def plan(image: LocalImage, tmp_path: Path, **more: object) -> ContainerSpec:
    spec = ContainerConfig(name="main", image=image.id, **more)  # type: ignore[arg-type]
    return supervisor_spec.plan(spec, image, place(tmp_path))


@pytest.mark.parametrize(
    ("command", "args", "argv"),
    [
        ((), (), ["/entry", "default"]),
        ((), ("a",), ["/entry", "a"]),
        (("run",), (), ["run"]),
        (("run",), ("a",), ["run", "a"]),
    ],
)
def test_command_and_arguments_replace_the_image_s(
    image: LocalImage, tmp_path: Path, command: Sequence[str], args: Sequence[str], argv: list[str]
) -> None:
    assert plan(image, tmp_path, command=command, args=args)["argv"] == argv


def test_nothing_to_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFailure, match="no command specified"):
        plan(LocalImage("x", "x", layers=(tmp_path,)), tmp_path)


def test_the_environment_is_the_pod_s_over_the_image_s(image: LocalImage, tmp_path: Path) -> None:
    env = plan(image, tmp_path, env=[("MODE", "pod"), ("EMPTY", "")], tty=True)["env"]
    assert env == ["PATH=/bin", "HOSTNAME=web", "TERM=xterm", "MODE=pod", "EMPTY=", "HOME=/root"]


def test_users_are_looked_up_in_the_image(image: LocalImage, tmp_path: Path) -> None:
    named = plan(image, tmp_path, security=ContainerSecurity(username="app", groups=(7,)))
    assert (named["user"], named["group"], named["groups"]) == (1000, 1001, [7, 44, 1001])
    assert "HOME=/home/app" in named["env"]
    strict = ContainerSecurity(user=1000, group=5, merge_image_groups=False, groups=(7,))
    assert plan(image, tmp_path, security=strict)["groups"] == [5, 7]
    with pytest.raises(RuntimeFailure, match="unable to find user nobody-here"):
        plan(image, tmp_path, security=ContainerSecurity(username="nobody-here"))


@pytest.mark.parametrize(
    ("name", "number"),
    [("", 15), ("SIGUSR1", 10), ("KILL", 9), ("12", 12), ("SIGRTMIN+3", 37), ("SIGRTMAX-1", 63)],
)
def test_signals_have_names(name: str, number: int) -> None:
    assert supervisor_spec.signal_number(name) == number


def test_a_signal_nobody_knows_is_refused(image: LocalImage, tmp_path: Path) -> None:
    assert plan(image, tmp_path)["stop_signal"] == 3
    with pytest.raises(RuntimeFailure, match='unknown stop signal "SIGNOPE"'):
        plan(image, tmp_path, stop_signal="SIGNOPE")


def test_resolv_conf_is_written_as_upstream_writes_it() -> None:
    dns = DnsConfig(servers=["10.0.0.1", "10.0.0.2"], searches=["a", "b"], options=["ndots:5"])
    text = "search a b\nnameserver 10.0.0.1\nnameserver 10.0.0.2\noptions ndots:5\n"
    assert supervisor_spec.resolv_conf(dns) == text
    assert supervisor_spec.resolv_conf(DnsConfig()) == ""


def test_files_of_the_pod_are_mounted_unless_the_pod_brings_its_own(
    image: LocalImage, tmp_path: Path
) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "resolv.conf").write_text("nameserver 1.1.1.1\n")
    (tmp_path / "sandbox" / "hostname").write_text("web\n")
    own = ContainerMount(container_path="/etc/hostname", host_path="/elsewhere", read_only=True)
    found = {bind["target"]: bind for bind in plan(image, tmp_path, mounts=[own])["binds"]}
    assert set(found) == {"/etc/hostname", "/etc/resolv.conf"}
    assert found["/etc/hostname"]["source"] == "/elsewhere"
    assert found["/etc/hostname"]["read_only"]


def test_files_of_the_pod_have_no_place_in_a_directory_that_takes_none(
    image: LocalImage, tmp_path: Path
) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "hostname").write_text("web\n")
    for read_only, targets in ((True, ["/etc"]), (False, ["/etc", "/etc/hostname"])):
        own = ContainerMount(container_path="/etc", host_path="/elsewhere", read_only=read_only)
        binds = plan(image, tmp_path, mounts=[own])["binds"]
        assert [bind["target"] for bind in binds] == targets


def test_only_views_of_the_machine_have_to_hide_something(
    image: LocalImage, tmp_path: Path
) -> None:
    view, own = plan(HOST_IMAGE, tmp_path), plan(image, tmp_path)
    assert (view["hidden"], view["concealed"], view["shown"]) == (
        ["/state"],
        ["/home", "/state"],
        ["/home/a"],
    )
    assert (own["hidden"], own["concealed"], own["shown"]) == ([], [], [])
    assert plan(image, tmp_path)["directory"] == "/srv"
    assert plan(image, tmp_path, working_dir="/a/../b")["directory"] == "/b"
    assert plan(image, tmp_path, log_path="main/0.log")["log"] == "/logs/pod/main/0.log"


def test_what_a_level_cannot_enforce_is_said_in_words() -> None:
    spec = ContainerConfig(
        name="main",
        image="host",
        resources=ContainerLimits(memory_limit=1, cpu_quota=50_000, hugepages={"2MB": -1}),
        security=ContainerSecurity(read_only_root=True),
    )
    assert supervisor_spec.shortfalls(spec, of_level(FULL), 0) == []
    assert supervisor_spec.shortfalls(spec, of_level(USERNS), 0) == []
    advisory = of_level(USERNS)._replace(cpu=ADVISORY, memory=ADVISORY, pids=ADVISORY)
    assert supervisor_spec.shortfalls(spec, advisory, 0) == [
        "the cpu limit is not enforced: no control groups are available",
        "the memory limit is not enforced: no control groups are available",
    ]
    assert supervisor_spec.shortfalls(spec, of_level(PLAIN), 0) == [
        "it shares processes, files and network with the machine: no namespaces",
        "its root file system is not read-only: this machine allows no mounts",
    ]


def test_limits_that_are_not_asked_for_are_not_told() -> None:
    asked = ContainerLimits(cpu_shares=2, hugepages={"2MB": 5})
    told = {"cpu_shares": 2, "cpu_period": 100_000, "hugepages": {"2MB": 5}}
    assert supervisor_spec.resources(asked) == told


def test_a_shared_pid_namespace_is_pointless_beside_the_machine_s_own() -> None:
    spec = SandboxConfig(namespace="n", name="p", uid="u", host_pid=True, shared_pid=True)
    assert not supervisor_spec.shared(spec)["shared_pid"]


def test_links_lead_to_what_is_kept_elsewhere(tmp_path: Path) -> None:
    listed, elsewhere = tmp_path / "listed", tmp_path / "elsewhere"
    for each in (listed / "usual", elsewhere):
        each.mkdir(parents=True)
    (listed / "other").symlink_to(elsewhere)
    assert supervisor_spec.linked([listed, tmp_path / "missing"]) == [elsewhere]


def test_a_label_of_selinux_is_a_shortfall_at_every_level(
    image: LocalImage, tmp_path: Path
) -> None:
    found = plan(image, tmp_path, security=ContainerSecurity(selinux_label="u:r:t:s0"))[
        "shortfalls"
    ]
    assert found == ['its SELinux label "u:r:t:s0" has no effect: this machine has no SELinux']


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"security": ContainerSecurity(user=65_536)}, "user 65536 does not exist"),
        ({"security": ContainerSecurity(group=70_000)}, "group 70000 does not exist"),
        ({"security": ContainerSecurity(groups=(70_000,))}, "group 70000 does not exist"),
        (
            {
                "mounts": [
                    ContainerMount(container_path="/v", host_path="/", propagation="Bidirectional")
                ]
            },
            "do not propagate",
        ),
    ],
)
def test_a_user_namespace_refuses_what_it_cannot_have(
    image: LocalImage, tmp_path: Path, more: dict[str, object], why: str
) -> None:
    spec = ContainerConfig(name="main", image=image.id, **more)  # type: ignore[arg-type]
    assert supervisor_spec.plan(spec, image, place(tmp_path))
    with pytest.raises(RuntimeFailure, match=why):
        supervisor_spec.plan(spec, image, place(tmp_path)._replace(first_id=65_536))


def test_the_missing_source_of_a_device_plugin_s_mount_becomes_a_directory(tmp_path: Path) -> None:
    there, missing, other = tmp_path / "file", tmp_path / "a" / "b", tmp_path / "other"
    there.write_text("x")
    for path in (there, missing):
        mount = ContainerMount(container_path="/in", host_path=str(path), makes_directory=True)
        supervisor_spec.make_source(mount)
    supervisor_spec.make_source(ContainerMount(container_path="/in", host_path=str(other)))
    assert there.read_text() == "x"
    assert missing.is_dir()
    assert not other.exists()
