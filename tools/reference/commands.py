"""The commands with their flags, and where else each setting can come from."""

import re
from argparse import SUPPRESS, Action, ArgumentParser, BooleanOptionalAction, _SubParsersAction
from collections.abc import Iterator
from typing import Final

from markdown import Page, cell, code, table

from kedge.cli.cluster.server import CONTROLLERS
from kedge.cli.main import parser

DEFAULT: Final = re.compile(r" \(default: (?:\$(KEDGE_\w+)(?:, else )?)?(.*?)\)(?=[;,.]|$)")
NAMES: Final = re.compile(re.escape(CONTROLLERS))
INTRODUCTION: Final = """\
Settings come from flags, then environment variables, then a file, then defaults. A flag with a
variable can also be set in the file, `kedge.toml`, under the name of the flag without its
dashes:

```toml
name = "dev"
nodes = 3
image-map = ["busybox:*=host"]
node-labels = { disk = "ssd" }
audit-log-path = "audit.log"    # relative to the directory of this file
```

The file is that of `--config`, else that of `$KEDGE_CONFIG`, else `kedge.toml` in
`$XDG_CONFIG_HOME/kedge` (`~/.config/kedge` if the variable is not set; for root `/etc/kedge`). A
file in the working directory is not read unless it is named. Unknown names and wrong values are
errors. An empty value on the command line or in the environment means the default, or none for a
file or a list."""


def page() -> Page:
    commands = subparsers(parser())
    body = "\n".join(section(2, f"kedge {name}", each) for name, each in commands.items())
    return Page("commands", "Commands and settings", INTRODUCTION, body)


def subparsers(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            return dict(action.choices)
    return {}


def section(level: int, title: str, parser: ArgumentParser) -> str:
    parts = [f"{'#' * level} {title}\n", f"{first_paragraph(parser)}\n"]
    found = list(rows(parser))
    if found:
        parts.append(table(("flag", "variable", "default", "meaning"), found))
    for name, below in subparsers(parser).items():
        parts.append(section(level + 1, f"{title} {name}", below))
    return "\n".join(parts)


def first_paragraph(parser: ArgumentParser) -> str:
    return cell((parser.description or "").split("\n\n")[0])


def rows(parser: ArgumentParser) -> Iterator[tuple[str, str, str, str]]:
    for action in parser._actions:
        if action.dest == "help" or action.help == SUPPRESS:
            continue
        if isinstance(action, _SubParsersAction):
            continue
        meaning = action.help or ""
        found = DEFAULT.search(meaning)
        variable, default = (found[1] or "", found[2]) if found else ("", "")
        meaning = NAMES.sub("; the names are in [Controllers](controllers.md)", meaning)
        yield names(action), code(variable), plain(default), plain(DEFAULT.sub("", meaning))


def plain(text: str) -> str:
    """Escape stars, which would be emphasis."""
    return text.replace("*", r"\*")


def names(action: Action) -> str:
    """Return the spellings of a flag or argument, with the name of its value."""
    if isinstance(action, BooleanOptionalAction):
        return ", ".join(f"`{each}`" for each in action.option_strings)
    value = action.metavar or ("|".join(action.choices) if action.choices else "")
    value = value if action.nargs != 0 else ""
    if not action.option_strings:
        return f"`{value or action.dest}`"
    first = next(each for each in action.option_strings if each.startswith("--"))
    whole = f"{first} {value}".strip()
    return ", ".join(f"`{whole if each == first else each}`" for each in action.option_strings)
