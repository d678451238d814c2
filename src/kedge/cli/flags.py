"""Flags that several commands share, and those that are made from settings."""

import argparse
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from kedge.settings import cluster
from kedge.settings.setting import BoundSetting, Setting

OUTPUTS: Final = ("json", "yaml")
SUGGESTED: Final = "suggested"
"""The attribute of a flag with the values that completion offers."""


def add_which(parser: ArgumentParser) -> None:
    """Add the flags that say which cluster the command is about."""
    for setting in (cluster.NAME, cluster.STATE, cluster.CONFIG):
        add_setting(parser, setting, setting.default)


def add_settings(
    parser: ArgumentParser,
    settings: Iterable[BoundSetting],
    defaults: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
) -> None:
    """Add the flags of settings.

    `defaults` describe what a command does if it is not what its configuration says; `notes` are
    added to the help.
    """
    for each in settings:
        name = each.setting.name
        default = (defaults or {}).get(name, each.default_text)
        add_setting(parser, each.setting, default, (notes or {}).get(name, ""))


def add_setting(
    parser: ArgumentParser, setting: Setting[Any], default: str, note: str = ""
) -> None:
    """Add the flag of one setting. It has no default here: other sources may have a value."""
    variable = f"${setting.variable}" if setting.variable else ""
    sources = ", else ".join(filter(None, (variable, default)))
    text = f"{setting.help}{note} (default: {sources}){setting.note}"
    names = (setting.flag, *setting.spellings)
    kind = setting.type
    if kind.is_switch:
        parser.add_argument(*names, action=argparse.BooleanOptionalAction, help=text)
    elif kind.choices:
        parser.add_argument(*names, choices=kind.choices, help=text)
    else:
        added = parser.add_argument(
            *names,
            dest=setting.dest,
            action="append" if kind.merge else "store",
            type=kind.parse,
            metavar=kind.metavar,
            help=text,
        )
        if kind.suggested:
            setattr(added, SUGGESTED, kind.suggested)


def add_kubeconfig(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig file to put the context into (default: the file that kubectl would"
        " change: $KUBECONFIG, else ~/.kube/config)",
    )


def add_output(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=OUTPUTS, help="print JSON or YAML, for programs")
