"""The controllers that --controllers can name."""

from typing import Final

from markdown import Page, code, table

from kedge.controllers.names import CONTROLLERS

INTRODUCTION: Final = """\
`--controllers` of `kedge up` and `kedge server` takes a list as kube-controller-manager does: `*`
for all, `NAME` for one, `-NAME` to leave one out. If a controller is in the list several times, the
first entry applies. `kedge status` shows the controllers that do not run."""


def page() -> Page:
    rows = [(code(each.name), code(each.alias), each.task) for each in CONTROLLERS]
    head = ("name", "short name", "task")
    return Page("controllers", "Controllers", INTRODUCTION, table(head, rows))
