"""Flags of the commands that speak to a cluster as kubectl does: through a kubeconfig."""

import argparse
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class ClientConfig(NamedTuple):
    """The kubeconfig, context and namespace of a command."""

    files: Sequence[Path]
    """The kubeconfig files."""
    context: str = ""
    """Empty for the current one."""
    namespace: str = ""
    """Empty for that of the context."""
    caches: Path | None = None
    """The directory of this user's caches; None if they have none."""


def add_words(parser: ArgumentParser, *, required: bool) -> None:
    """Which objects the command is about."""
    parser.add_argument(
        "words",
        nargs="+" if required else "*",
        metavar="TYPE[/NAME]",
        help="a type such as pods, or several with commas between them; then names, if any",
    )


def add_cluster(parser: ArgumentParser) -> None:
    """Which cluster, and which namespace of it, the command is about."""
    parser.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAMESPACE",
        help="namespace (default: that of the context, else default)",
    )
    add_context(parser)


def add_context(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--context", default="", metavar="NAME", help="context (default: the current one)"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig file (default: those that $KUBECONFIG lists, else ~/.kube/config)",
    )


def add_everywhere(parser: ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="in all namespaces")


def add_label_selector(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        metavar="LABELS",
        help="only objects with these labels, such as app=web,tier!=test",
    )


def add_selectors(parser: ArgumentParser) -> None:
    add_label_selector(parser)
    parser.add_argument(
        "--field-selector",
        default="",
        metavar="FIELDS",
        help="only objects with these fields, such as status.phase=Running",
    )


def add_ignore_not_found(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--ignore-not-found", action="store_true", help="do not fail if an object does not exist"
    )


def add_files(parser: ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        required=required,
        default=None if required else [],
        metavar="FILE",
        help="file or directory with manifests, - for standard input; may be repeated",
    )
    parser.add_argument("-R", "--recursive", action="store_true", help="also read subdirectories")


def add_dry_run(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run",
        choices=("none", "server"),
        default="none",
        help="server: send a dry-run request, which changes nothing (default: none)",
    )


def add_written(parser: ArgumentParser) -> None:
    """How what was written is shown."""
    parser.add_argument(
        "-o",
        "--output",
        type=output("yaml", "json", "name", "jsonpath=TEMPLATE"),
        default="",
        metavar="FORMAT",
        help="print the object instead: yaml, json, name, or jsonpath=TEMPLATE",
    )


def output(*formats: str) -> Callable[[str], str]:
    """How to read a format: one of these, or one that begins as the last does up to its `=`."""
    prefixes = tuple(each.partition("=")[0] + "=" for each in formats if "=" in each)

    def read(value: str) -> str:
        if value and value not in formats and not value.startswith(prefixes):
            raise argparse.ArgumentTypeError(
                f'unable to match a printer suitable for the output format "{value}", allowed'
                f" formats are: {', '.join(formats)}"
            )
        return value

    return read
