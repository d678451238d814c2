"""The settings of a cluster that runs, and how those of a command differ from them."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from kedge.apiserver.config import ServerConfig
from kedge.cli.cluster import node, node_pool, restarts, server, server_parts, state
from kedge.cli.cluster.up.command import (
    NODES,
    OF_A_SERVER_ALONE,
    RESTART,
    SCALE_DOWN_DELAY,
    UpConfig,
)
from kedge.cli.config.settings import Settings
from kedge.node.config import REGISTRY_FIELDS, NodeConfig
from kedge.settings.node_range import NodeRange
from kedge.settings.setting import BoundSetting, Setting, declared

OF_IMAGES: Final = tuple(declared(NodeConfig, each) for each in ("image_map", *REGISTRY_FIELDS))
"""Settings that change by a restart of the node agents alone."""
_PORT: Final = declared(ServerConfig, "port")
_FOUND_ANEW: Final = ("machine_address",)
"""Fields that `kedge up` fills in itself: a recorded value does not replace that."""


class RunningSettings(NamedTuple):
    """The settings of a running cluster, as its processes have them."""

    server: tuple[str, ...]
    """The flags of its server."""
    node: tuple[str, ...]
    """The flags of its first node; empty without nodes."""
    nodes: NodeRange | None
    """How many nodes it has; None if `kedge up` did not start it."""
    policy: str
    """Whether programs that die are restarted; empty if `kedge up` did not start it."""
    scale_down_delay: float | None = None
    """Of a cluster with a node autoscaler."""


class SettingChange(NamedTuple):
    """A setting that a command was given and that a running cluster has another value for."""

    setting: Setting[Any]
    running: tuple[str, ...]
    """The flags of the running cluster's value; empty for the default."""
    given: tuple[str, ...]
    """The flags of the given value."""
    is_live: bool
    """Whether it can change while the cluster runs."""

    def __str__(self) -> str:
        return f"{self.setting.flag} is {_values(self.running)}, not {_values(self.given)}"

    @property
    def done(self) -> str:
        """The message after the change."""
        return f"{self.setting.flag} is {_values(self.given)} now, it was {_values(self.running)}."


def read(directory: Path) -> RunningSettings | None:
    """Return the settings of the cluster in this directory; None if its server does not run."""
    found, known = server_parts.any_running(directory), state.read_server(directory)
    if found is None or known is None:
        return None
    if known.pid != found.pid and not server_parts.is_shared(known):
        return None
    recorded, pool = restarts.read(directory), node_pool.read(directory)
    if recorded is None:
        return RunningSettings(known.flags, (), None, "")
    agents = [each for each in recorded.parts if not _is_no_agent(each.name)]
    least = len(agents)
    return RunningSettings(
        server=known.flags,
        node=agents[0].flags if agents else (),
        nodes=NodeRange(least, least + len(pool.nodes) if pool else least),
        policy=recorded.policy,
        scale_down_delay=pool.calm_seconds if pool else None,
    )


def _is_no_agent(part: str) -> bool:
    return server_parts.is_server(part) or part == node_pool.PART


def values(running: RunningSettings) -> dict[str, Any]:
    """Return the values of a running cluster's settings by name, without those of defaults."""
    found: dict[str, Any] = {}
    for flags, settings in ((running.server, _of_server()), (running.node, _of_nodes())):
        for each in settings:
            texts = _flags(flags, each.setting)
            if texts and each.field not in _FOUND_ANEW:
                found.setdefault(each.setting.name, _parsed(each.setting, texts))
    if running.nodes is not None:
        found[NODES.name] = running.nodes
    if running.policy:
        found[RESTART.name] = running.policy
    if running.scale_down_delay is not None:
        found[SCALE_DOWN_DELAY.name] = running.scale_down_delay
    return found


def changes(source: Settings, running: RunningSettings, config: UpConfig) -> list[SettingChange]:
    """Return the settings that were given and differ. `config` has the running cluster's value for
    each setting that was not given."""
    found = _changes(source, running.server, _of_server(), config.server)
    if running.node and config.nodes:
        found += _changes(source, running.node, _of_nodes(), config.nodes[0])
    least = len(config.nodes)
    wanted = {
        NODES: (running.nodes, NodeRange(least, least + len(config.spare))),
        RESTART: (running.policy or None, config.restart),
        SCALE_DOWN_DELAY: (running.scale_down_delay, config.scale_down_delay),
    }
    for setting, (before, after) in wanted.items():
        if before not in (None, after) and source.get(setting) is not None:
            texts, given = setting.arguments(before), setting.arguments(after)
            is_live = setting is RESTART or _is_fixed(before, after)
            found.append(SettingChange(setting, tuple(texts), tuple(given), is_live))
    return list({each.setting.name: each for each in found}.values())


def command(name: str, changed: Sequence[SettingChange]) -> str:
    """Return the command that restarts a cluster with changed settings."""
    named = [] if name == "default" else [f"--name={name}"]
    flags = [flag for each in changed for flag in each.given]
    return shlex.join(["kedge", "up", *named, *flags, "--restart"])


def _is_fixed(before: object, after: object) -> bool:
    """Whether both are numbers of nodes without an autoscaler."""
    return all(isinstance(each, NodeRange) and each.least == each.most for each in (before, after))


def _of_server() -> list[BoundSetting]:
    return [each for each in server.settings() if each.field not in OF_A_SERVER_ALONE]


def _of_nodes() -> list[BoundSetting]:
    return node.settings()


def _changes(
    source: Settings, flags: Sequence[str], settings: Iterable[BoundSetting], config: Any
) -> list[SettingChange]:
    found = []
    first: dict[str, Setting[Any]] = {}
    for each in settings:
        # Of several settings of one field the first one sets it whole, in the record too.
        whole = first.setdefault(each.field, each.setting)
        if source.get(each.setting) is None:
            continue
        before = tuple(_flags(flags, whole))
        after = tuple(whole.arguments(_field(config, each.field)))
        # Port 0 stands for any free port.
        if after != before and after != tuple(_PORT.arguments(0)):
            found.append(SettingChange(whole, before, after, whole in OF_IMAGES))
    return found


def _field(config: Any, name: str) -> Any:
    """Return a field of a configuration, or of one that is nested in it."""
    if name in config.__struct_fields__:
        return getattr(config, name)
    parts = (getattr(config, each) for each in config.__struct_fields__)
    return next(
        getattr(part, name) for part in parts if name in getattr(part, "__struct_fields__", ())
    )


def _flags(flags: Iterable[str], setting: Setting[Any]) -> list[str]:
    """Return those of the flags that set this setting."""
    if setting.type.is_switch:
        return [each for each in flags if each in (setting.flag, f"--no-{setting.name}")]
    return [each for each in flags if each.startswith(f"{setting.flag}=")]


def _parsed(setting: Setting[Any], flags: Sequence[str]) -> Any:
    if setting.type.is_switch:
        return flags[-1] == setting.flag
    return setting.type.parse_all([each.partition("=")[2] for each in flags])


def _values(flags: Sequence[str]) -> str:
    return " ".join(map(_value, flags)) or "the default"


def _value(flag: str) -> str:
    """Return the value of a flag as people read it: --x=1 is 1, --x is on, --no-x is off."""
    _, given, value = flag.partition("=")
    if given:
        return shlex.quote(value)
    return "off" if flag.startswith("--no-") else "on"


def held(changed: Iterable[SettingChange], running: Mapping[str, Any]) -> dict[str, Any]:
    """Return the running cluster's values of changed settings; None for a default."""
    return {each.setting.name: running.get(each.setting.name) for each in changed}
