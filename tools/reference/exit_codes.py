"""The exit codes of the commands."""

from collections.abc import Iterator
from typing import Final

from markdown import Page, summary, table

from kedge.cli import failure, main

INTRODUCTION: Final = """\
All commands exit with these codes. `kedge server` and `kedge node` use 73, 75 and 78 for service
managers: a systemd unit should have `RestartPreventExitStatus=78`. `kedge exec` exits with the
code of the command that it ran, and `kedge status` with 1 if the cluster is not ready.
`kedge run` exits with the code of the command that it ran, 126 or 127 if that cannot be run or
does not exist, and 125 if the cluster could not be started: so CI can tell a failed set-up from
failed tests. `kedge up` exits with 1 if it was used wrongly, which it finds before anything is
started, and with 125 if the cluster could not be started, also because its files are damaged, lost
or of another version.
The live view of `kedge top` exits with 129 or 143 if SIGHUP or SIGTERM ended it.
`kedge doctor` exits with 1 if no cluster can run, and with `--strict` with 2 if something lacks.
[Exit codes of containers](../runtime.md#exit-codes-and-reasons) are others."""


def page() -> Page:
    body = table(("code", "meaning"), ((str(code), text) for code, text in meanings().items()))
    return Page("exit-codes", "Exit codes", INTRODUCTION, body)


def meanings() -> dict[int, str]:
    """Return what each code means, in order."""
    found = {
        0: "Success; for `kedge server` and `kedge node` also the end after SIGTERM or SIGINT.",
        main.INTERRUPTED: "Ctrl-C interrupted the command.",
        main.BROKEN_PIPE: "The reader of the output, such as `head`, has ended.",
    }
    for each in failures(failure.Failure):
        found.setdefault(each.code, summary(each))
    return dict(sorted(found.items()))


def failures(base: type[failure.Failure]) -> Iterator[type[failure.Failure]]:
    yield base
    for each in base.__subclasses__():
        yield from failures(each)
