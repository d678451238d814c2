"""Look settings up: flags, then environment variables, then kedge.toml.

No other module reads the environment.
"""

import argparse
import os
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kedge.cli.config import file
from kedge.cli.failure import Failure
from kedge.settings import cluster
from kedge.settings.setting import Setting, declared, field_settings, nested_config

if TYPE_CHECKING:
    import msgspec

    C = TypeVar("C", bound=msgspec.Struct)

T = TypeVar("T")


class Settings:
    """The settings that one command was given."""

    def __init__(
        self,
        flags: Namespace,
        environment: Mapping[str, str] = os.environ,
        content: Mapping[str, Any] | None = None,
    ) -> None:
        """`content` is that of the file of settings; if it is None, the file is found and read."""
        self.flags = flags
        self.environment = environment
        self.path = self._find_file() if content is None else None
        """The file of settings; None if there is none."""
        self._content = content or (file.read(self.path) if self.path else {})
        self._held: Mapping[str, Any] = {}

    def over(self, weaker: Mapping[str, Any]) -> "Settings":
        """Return this source with values for the settings that none of its layers has."""
        return self._with({**weaker, **self._content}, self._held)

    def holding(self, values: Mapping[str, Any]) -> "Settings":
        """Return this source with values that are stronger than all of its layers; None for the
        default."""
        return self._with(self._content, values)

    def _with(self, content: Mapping[str, Any], held: Mapping[str, Any]) -> "Settings":
        made = Settings(self.flags, self.environment, {})
        made.path, made._content, made._held = self.path, content, held
        return made

    def get(self, setting: Setting[T]) -> T | None:
        """Return the value of a setting; None if none was given."""
        if setting.name in self._held:
            chosen: T | None = self._held[setting.name]
            return chosen
        value: T | None = self._flag(setting)
        if value is None and not setting.only_flag:
            value = self._variable(setting)
            value = self._content.get(setting.name) if value is None else value
        return value

    def value(self, setting: Setting[T]) -> T:
        """Return the value of a setting; its default if none was given."""
        given = self.get(setting)
        default: T = setting.type.parse(setting.default)
        return default if given is None else given

    def field(self, config: "type[msgspec.Struct]", name: str) -> Any:
        """Return the value that was given for a field of a configuration; None if none was."""
        return self.get(declared(config, name))

    def fill(
        self, config: "type[C]", defaults: Mapping[str, Any] | None = None, **known: Any
    ) -> "C":
        """Return a configuration with the given settings and the fields that are known already.

        `defaults` take the place of those of the configuration. An empty text means the default.
        """
        from msgspec.structs import fields

        values = dict(defaults or {}) | known
        for field in fields(config):
            if field.name in known:
                continue
            if nested := nested_config(field):
                values[field.name] = self.fill(nested)
            for setting in field_settings(field):
                if (value := self.get(setting)) not in (None, ""):
                    values[field.name] = value
        return config(**values)

    def without_weaker(self, settings: Iterable[Setting[Any]]) -> "Settings":
        """Return the source down to the first of its layers that has one of these settings."""
        settings = list(settings)
        if any(self._flag(each) is not None for each in settings):
            return Settings(self.flags, {}, {})
        if any(self._variable(each) is not None for each in settings):
            return Settings(self.flags, self.environment, {})
        return self

    def is_flag(self, setting: Setting[Any]) -> bool:
        """Return whether the setting was given on the command line."""
        return self._flag(setting) is not None

    def _flag(self, setting: Setting[T]) -> Any:
        value = getattr(self.flags, setting.dest, None)
        return setting.type.merge(value) if setting.type.merge and value is not None else value

    def _variable(self, setting: Setting[T]) -> Any:
        text = self.environment.get(setting.variable)
        if text is None:
            return None
        try:
            return setting.type.parse_all([text])
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise Failure(f"${setting.variable}: {error}") from error

    def _find_file(self) -> Path | None:
        """Return the file of settings; None if there is none."""
        if not hasattr(self.flags, cluster.CONFIG.dest):
            return None
        for chosen in (self._flag(cluster.CONFIG), self._variable(cluster.CONFIG)):
            if chosen is not None:
                return chosen or None
        usual = self.usual_file()
        return usual if usual and os.path.lexists(usual) else None

    def usual_file(self) -> Path | None:
        """Return the file of settings if no other one is named; None without a home directory."""
        chosen = Path(self.environment.get("XDG_CONFIG_HOME", ""))
        if chosen.is_absolute():
            return chosen / "kedge" / file.NAME
        if os.geteuid() == 0:
            return Path("/etc/kedge") / file.NAME
        home = self.environment.get("HOME", "")
        return Path(home) / ".config" / "kedge" / file.NAME if home else None

    def root(self) -> Path:
        """Return the directory that keeps and lists clusters."""
        chosen = Path(self.environment.get("XDG_STATE_HOME", ""))
        # The base directory specification says to ignore a relative path. A cluster would be found
        # again in one working directory only.
        if chosen.is_absolute():
            return chosen.resolve() / "kedge"
        return self.usual_root()

    def usual_root(self) -> Path:
        """Return the same if $XDG_STATE_HOME is not set."""
        if os.geteuid() == 0:
            return Path("/var/lib/kedge")
        return self.home().resolve() / ".local" / "state" / "kedge"

    def caches(self) -> Path | None:
        """Return the directory of this user's caches; None without a home directory."""
        chosen = Path(self.environment.get("XDG_CACHE_HOME", ""))
        if chosen.is_absolute():
            return chosen / "kedge"
        home = self.environment.get("HOME", "")
        return Path(home) / ".cache" / "kedge" if home else None

    def home(self) -> Path:
        if home := self.environment.get("HOME"):
            return Path(home)
        try:
            return Path("~").expanduser()
        except RuntimeError as error:
            raise Failure(
                f"user {os.geteuid()} has no home directory: set HOME to one that is theirs"
            ) from error
