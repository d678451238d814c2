"""The declaration of a setting, from which flags, configuration, child processes and docs are made.

A setting belongs to a process if it annotates a field of that process's configuration:

    max_pods: Annotated[int, Setting("max-pods", values.COUNT, "number of pods")] = 110
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args

if TYPE_CHECKING:
    import msgspec
    from msgspec.structs import FieldInfo

T = TypeVar("T")


class ValueType(NamedTuple, Generic[T]):
    """How the values of a setting are read and written."""

    parse: Callable[[str], Any]
    """Read one text; raises argparse.ArgumentTypeError or ValueError."""
    metavar: str = ""
    """The value's name in the help."""
    text: Callable[[Any], str] = str
    """Write a value so that `parse` reads it again."""
    choices: tuple[str, ...] = ()
    """All texts that are valid, if they can be listed."""
    suggested: tuple[str, ...] = ()
    """Texts that completion offers, if there are others, too."""
    is_switch: bool = False
    """Whether the flag stands alone: --x and --no-x."""
    merge: Callable[[Sequence[Any]], T] | None = None
    """Combine the values of a flag that may be repeated."""
    split: Callable[[Any], Sequence[Any]] = list
    """Separate them again, one for each flag."""
    is_path: bool = False
    """Whether a relative value in a file is relative to the directory of that file."""

    def parse_all(self, texts: Sequence[str]) -> Any:
        """Return the value of a setting for which these texts were given."""
        parsed = [self.parse(each) for each in texts]
        return self.merge(parsed) if self.merge else parsed[-1]


class Setting(NamedTuple, Generic[T]):
    """A named value that flags, the environment or kedge.toml can set."""

    name: str
    """As in kedge.toml; the flag and the variable are made from it."""
    type: ValueType[T]
    help: str
    default: str = ""
    """The default in words, if the value itself does not tell enough."""
    note: str = ""
    """The end of the help, behind the default."""
    spellings: tuple[str, ...] = ()
    """Other spellings of the flag."""
    only_flag: bool = False
    """Whether neither the environment nor kedge.toml can set it."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """The name of the environment variable; empty if there is none."""
        return "" if self.only_flag else f"KEDGE_{self.dest.upper()}"

    @property
    def dest(self) -> str:
        """The attribute of the parsed flags."""
        return self.name.replace("-", "_")

    def arguments(self, value: Any) -> list[str]:
        """Return the flags that set this value, whatever the environment says."""
        if self.type.is_switch:
            return [self.flag if value else f"--no-{self.name}"]
        values = self.type.split(value) if self.type.merge else [value]
        return [f"{self.flag}={self.type.text(each)}" for each in values]


class BoundSetting(NamedTuple):
    """A setting and the field of a configuration that it sets."""

    setting: Setting[Any]
    field: str
    default: Any
    """The default of the field; None if it has none."""

    @property
    def default_text(self) -> str:
        """The default as the help shows it; empty if it is an empty list or no file."""
        if (
            self.setting.default
            or self.setting.type.is_switch
            or self.default in (None, (), {}, "", b"")
        ):
            return self.setting.default
        return self.setting.type.text(self.default)


def bound_settings(config: "type[msgspec.Struct]") -> Iterator[BoundSetting]:
    """Yield the settings of a configuration in the order of its fields, nested ones included."""
    from msgspec.structs import fields

    for field in fields(config):
        if nested := nested_config(field):
            yield from bound_settings(nested)
        for each in field_settings(field):
            yield BoundSetting(each, field.name, _default(field))


def _default(field: "FieldInfo") -> Any:
    from msgspec import NODEFAULT

    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return None if field.default is NODEFAULT else field.default


def declared(config: "type[msgspec.Struct]", field: str) -> Setting[Any]:
    """Return the setting of a field; the first one, if several settings change the field."""
    return next(each.setting for each in bound_settings(config) if each.field == field)


def field_settings(field: "FieldInfo") -> list[Setting[Any]]:
    return [each for each in get_args(field.type)[1:] if isinstance(each, Setting)]


def nested_config(field: "FieldInfo") -> "type[msgspec.Struct] | None":
    """Return the type of a field if it is a configuration itself."""
    from msgspec import Struct

    kind = field.type
    return kind if isinstance(kind, type) and issubclass(kind, Struct) else None


def arguments(config: "msgspec.Struct") -> list[str]:
    """Return the flags that give a child process this configuration.

    Of several settings of one field the first one sets it whole; the others only change a default.
    """
    from msgspec.structs import fields

    found: list[str] = []
    for field in fields(config):
        value = getattr(config, field.name)
        if nested_config(field):
            found += arguments(value)
        for setting in field_settings(field)[:1]:
            found += setting.arguments(value)
    return found
