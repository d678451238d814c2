"""The admission plugins, in the order in which they run."""

from typing import Final

from markdown import Page, code, summary, table

from kedge.apiserver.admission import plugins
from kedge.apiserver.config import (
    ADMISSION_PLUGINS,
    INACTIVE_ADMISSION,
    SERVER_ADMISSION,
    UPSTREAM_ADMISSION,
)

INTRODUCTION: Final = """\
Every write passes them in this order: first each plugin may change the object, then each may
refuse it. `--admission-control` names the exact list; `--enable-admission-plugins` and
`--disable-admission-plugins` change the default. `kedge status` shows the enabled ones."""


def page() -> Page:
    rows = [
        (code(name), description(name), yes(UPSTREAM_ADMISSION, name), yes(SERVER_ADMISSION, name))
        for name in ADMISSION_PLUGINS
    ]
    head = ("plugin", "does", "on in `kedge up`", "on in `kedge server`")
    return Page("admission-plugins", "Admission plugins", INTRODUCTION, table(head, rows))


def description(name: str) -> str:
    """Return the first sentence of the docstring of the plugin's class."""
    if name in INACTIVE_ADMISSION:
        return "Has no effect: its feature is off by default in Kubernetes, and kedge lacks it."
    classes = (each for each in vars(plugins).values() if isinstance(each, type))
    return summary(next(each for each in classes if getattr(each, "name", "") == name))


def yes(names: tuple[str, ...], name: str) -> str:
    return "yes" if name in names else ""
