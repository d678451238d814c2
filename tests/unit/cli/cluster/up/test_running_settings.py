"""The settings of a running cluster, and those of a command that differ."""

from argparse import Namespace
from pathlib import Path

import pytest

from kedge.apiserver.config import ServerConfig
from kedge.cli.cluster import node, server
from kedge.cli.cluster.up import running_settings
from kedge.cli.cluster.up.running_settings import RunningSettings, SettingChange
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.main import parser
from kedge.settings.node_range import NodeRange
from kedge.settings.setting import arguments, declared


def flags(*words: str) -> Namespace:
    return parser().parse_args(["up", *words])


def running(environment: dict[str, str], *words: str) -> RunningSettings:
    """The cluster that `kedge up` with these flags has started."""
    config = up_config(Settings(flags(*words), environment))
    least = len(config.nodes)
    return RunningSettings(
        server=tuple(server.child_arguments(config.server)),
        node=tuple(node.child_arguments(config.nodes[0], config.server.state)),
        nodes=NodeRange(least, least + len(config.spare)),
        policy=config.restart,
        scale_down_delay=config.scale_down_delay if config.spare else None,
    )


def differences(
    environment: dict[str, str], before: RunningSettings, *words: str
) -> list[SettingChange]:
    source = Settings(flags(*words), environment)
    config = up_config(source.over(running_settings.values(before)))
    return running_settings.changes(source, before, config)


@pytest.mark.parametrize(
    ("before", "given", "differ", "is_live"),
    [
        ((), (), [], True),
        (("--nodes=3", "--max-pods=7", "--port=7001", "--no-host-image"), (), [], True),
        (("--nodes=3",), ("--nodes=3",), [], True),
        (("--port=7001",), ("--port=0",), [], True),
        (("--port=7001",), ("--port=7001",), [], True),
        (("--port=7001",), ("--port=7002",), ["--port is 7001, not 7002"], False),
        ((), ("--nodes=3",), ["--nodes is 1, not 3"], True),
        ((), ("--nodes=1..3",), ["--nodes is 1, not 1..3"], False),
        (("--nodes=1..3",), ("--nodes=3",), ["--nodes is 1..3, not 3"], False),
        ((), ("--image-map=a=host",), ["--image-map is the default, not a=host"], True),
        ((), ("--restart=never",), ["--restart is always, not never"], True),
        ((), ("--no-host-image",), ["--host-image is on, not off"], False),
        ((), ("--node-labels=a=b",), ["--node-labels is '', not a=b"], False),
        ((), ("--simulated-nodes=2",), ["--simulated-nodes is 0, not 2"], False),
    ],
)
def test_only_given_settings_that_differ_are_told(
    environment: dict[str, str],
    before: tuple[str, ...],
    given: tuple[str, ...],
    differ: list[str],
    is_live: bool,
) -> None:
    found = differences(environment, running(environment, *before), *given)
    assert [str(each) for each in found] == differ
    assert all(each.is_live == is_live for each in found)


def test_the_environment_counts_as_given(environment: dict[str, str]) -> None:
    before = running(environment)
    environment["KEDGE_MAX_PODS"] = "9"
    (found,) = differences(environment, before)
    assert str(found) == "--max-pods is 110, not 9"


def test_a_plugin_that_is_enabled_is_compared_with_the_whole_list(
    environment: dict[str, str],
) -> None:
    before = running(environment)
    assert not differences(environment, before, "--enable-admission-plugins=LimitRanger")
    (found,) = differences(environment, before, "--disable-admission-plugins=LimitRanger")
    assert found.setting == declared(ServerConfig, "admission")
    assert "LimitRanger" not in found.given[0]


def test_a_restart_keeps_the_settings_that_are_not_given(environment: dict[str, str]) -> None:
    before = running(
        environment, "--nodes=1..3", "--max-pods=7", "--scale-down-delay=9s", "--no-host-image"
    )
    source = Settings(flags("--port=7001"), environment).over(running_settings.values(before))
    config = up_config(source)
    assert (len(config.nodes), len(config.spare), config.scale_down_delay) == (1, 2, 9.0)
    assert (config.nodes[0].max_pods, config.nodes[0].host_image) == (7, False)
    assert config.server.port == 7001
    assert "--max-pods=7" in arguments(config.nodes[0])


def test_settings_that_need_a_restart_are_held_back(environment: dict[str, str]) -> None:
    before = running(environment, "--max-pods=7")
    known = running_settings.values(before)
    found = differences(environment, before, "--max-pods=9", "--pod-max-pids=5", "--nodes=2")
    left = [each for each in found if not each.is_live]
    source = Settings(flags("--max-pods=9", "--pod-max-pids=5", "--nodes=2"), environment)
    config = up_config(source.over(known).holding(running_settings.held(left, known)))
    assert [each.max_pods for each in config.nodes] == [7, 7]
    assert config.nodes[0].max_pids == 4096


def test_the_command_that_restarts_is_one_for_a_shell(environment: dict[str, str]) -> None:
    found = differences(environment, running(environment), "--node-labels=a=b", "--hide=/a b")
    told = running_settings.command("dev", found)
    assert told.startswith("kedge up --name=dev --node-labels=a=b ")
    assert told.endswith(" '--hide=/a b' --restart")
    assert running_settings.command("default", []) == "kedge up --restart"


def test_a_cluster_that_does_not_run_has_no_settings(tmp_path: Path) -> None:
    assert running_settings.read(tmp_path) is None
