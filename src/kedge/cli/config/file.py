"""Read settings from kedge.toml."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kedge.cli.failure import Failure
from kedge.settings.setting import Setting

NAME: Final = "kedge.toml"


def read(path: Path) -> Mapping[str, Any]:
    """Return the settings of a file by name."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Failure(f"cannot read the settings in {path}: {why}") from error
    return parse(path, text)


def parse(path: Path, text: str) -> Mapping[str, Any]:
    """Return the settings in the text of a file; refuse unknown ones."""
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{path} is not valid TOML: {error}") from error
    known = known_settings()
    if unknown := [name for name in content if name not in known]:
        raise Failure(f'unknown setting "{unknown[0]}" in {path}{_hint(unknown[0], known)}')
    return {name: _value(path, known[name], value) for name, value in content.items()}


def known_settings() -> dict[str, Setting[Any]]:
    """Return all settings that a file can have, by name."""
    from kedge.admission_webhook.config import AdmissionWebhookConfig
    from kedge.apiserver.config import ServerConfig
    from kedge.cli.cluster.up.command import NODES, RESTART, SCALE_DOWN_DELAY
    from kedge.metrics_server.config import MetricsServerConfig
    from kedge.node.config import Invitation, NodeConfig
    from kedge.settings.setting import bound_settings

    configs = (AdmissionWebhookConfig, MetricsServerConfig, Invitation, NodeConfig, ServerConfig)
    bound = [each.setting for config in configs for each in bound_settings(config)]
    return {
        each.name: each for each in (*bound, NODES, RESTART, SCALE_DOWN_DELAY) if not each.only_flag
    }


def _hint(name: str, known: Mapping[str, Setting[Any]]) -> str:
    import difflib

    if close := difflib.get_close_matches(name.replace("_", "-"), known, 1):
        return f': did you mean "{close[0]}"?'
    return ": a setting is named as its flag, without the leading dashes"


def _value(path: Path, setting: Setting[Any], value: object) -> Any:
    try:
        texts = _texts(value)
        if setting.type.is_path:
            texts = [_beside(path, each) for each in texts]
        return setting.type.parse_all(texts if setting.type.merge else [",".join(texts)])
    except (argparse.ArgumentTypeError, ValueError) as error:
        raise Failure(f"{setting.name} in {path}: {error}") from error


def _texts(value: object) -> Sequence[str]:
    """Return a TOML value in the form that a flag has: one text for each item of a list."""
    match value:
        case bool():
            return [str(value).lower()]
        case str() | int() | float():
            return [str(value)]
        case list():
            return [text for each in value for text in _texts(each)]
        case dict():
            return [f"{name}={text}" for name, each in value.items() for text in _texts(each)]
    raise ValueError("is a date or a time: give text")


def _beside(path: Path, text: str) -> str:
    """Return a path that is relative to the directory of the file, if it is relative."""
    return str(path.absolute().parent / os.path.expanduser(text)) if text else ""
