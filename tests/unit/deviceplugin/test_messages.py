"""The published .proto and the messages say the same."""

import re
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

from kedge.deviceplugin import messages

PROTO = Path(__file__).resolve().parents[3] / "docs" / "device-plugin.proto"
MESSAGES = dict(re.findall(r"^message (\w+) \{(.*?)\}$", PROTO.read_text(), re.S | re.M))
ELSEWHERE = {"PluginInfo", "RegistrationStatus"}
"""Of the plugin watcher, which has a package of its own."""
SCALARS = {str: "string", bool: "bool"}


def published(name: str) -> dict[int, str]:
    """The types by number."""
    fields = re.findall(r"^  (repeated \w+|map<.*?>|\w+) \w+ = (\d+);$", MESSAGES[name], re.M)
    return {int(number): kind for kind, number in fields}


def declared(kind: Any) -> dict[int, str]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in kind.__struct_fields__:
        hint = hints[field]
        assert get_origin(hint) is Annotated
        inner, number = get_args(hint)
        found[number] = spelled(inner)
    return found


def spelled(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return spelled(arguments[0])
    if origin is not None and issubclass(origin, Mapping):
        return "map<string, string>"
    if origin is not None and issubclass(origin, Sequence):
        return f"repeated {spelled(arguments[0])}"
    return "int" if kind is int else SCALARS.get(kind) or str(kind.__name__)


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_numbers_and_types_agree(name: str) -> None:
    if name == "PreStartContainerResponse":
        assert published(name) == {}
        return
    integers = {n: re.sub(r"int(32|64)", "int", kind) for n, kind in published(name).items()}
    assert integers == declared(getattr(messages, name))


def test_every_message_is_published() -> None:
    made = {n for n, kind in vars(messages).items() if hasattr(kind, "__struct_fields__")}
    assert made - ELSEWHERE == set(MESSAGES) - {"PreStartContainerResponse"}
