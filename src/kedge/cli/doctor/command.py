"""`kedge doctor`: the capabilities of this machine, the cost of each lack, and its remedy."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kedge.cli import flags
from kedge.cli.objects import client_flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kedge.cli.doctor.findings import MachineFinding
    from kedge.cli.output.colour import Colour

DESCRIPTION: Final = """\
Show what this machine offers to clusters of this user: kernel, control groups, namespaces,
overlays, users, packet rules, ports, kubectl, clock and disk. Each lack is shown with its cost and
the command that mends it.
The exit code is 0 if a cluster can run, 1 if it cannot, and with --strict 2 if something lacks.

With POD, tell why the pod does not run: the one cause, the evidence, and what to do. A workload
such as deploy/web stands for its pods, or for the reason that it has none. The exit code is 0 if
all of them run."""
EXAMPLES: Final = """\
  kedge doctor
  kedge doctor -o json

  # Why does a pod, or a Deployment, not run?
  kedge doctor web-0
  kedge doctor deploy/web -n shop

  # Refuse a machine on which the kernel does not enforce all limits
  kedge doctor --strict && kedge up"""

FAILED: Final = 1
LACKING: Final = 2
COLOURS: "Final[Mapping[str, Colour]]" = {"ok": "green", "lacks": "yellow", "failed": "red"}


def add_flags(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pod",
        nargs="?",
        default="",
        metavar="POD",
        help="a pod, or a workload such as deploy/web; without it the machine is examined",
    )
    client_flags.add_cluster(parser)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 2 if anything lacks, even if clusters run"
    )
    flags.add_output(parser)


def run(flags: Namespace) -> int:
    if flags.pod:
        return _examine_pod(flags)
    from kedge.cli.config.settings import Settings
    from kedge.cli.doctor.findings import diagnose
    from kedge.cli.doctor.machine_facts import collect
    from kedge.cli.output.printers import document

    found = collect(Settings(flags).root())
    findings = diagnose(found)
    if flags.output:
        print(document({"level": found.capabilities.level, "checks": findings}, flags.output))
    else:
        print(coloured(describe(found.capabilities.level, findings), findings))
    return exit_code(findings, strict=flags.strict)


def _examine_pod(flags: Namespace) -> int:
    from kedge.cli.config.kubeconfig import client_config
    from kedge.cli.config.settings import Settings
    from kedge.cli.doctor.pod_show import show
    from kedge.cli.objects.connection import visit_briefly

    config = client_config(Settings(flags))
    return visit_briefly(config, lambda there: show(there, flags.pod, flags.output))


def exit_code(findings: "Sequence[MachineFinding]", *, strict: bool) -> int:
    """Return the exit code of the command."""
    found = {each.status for each in findings}
    if "failed" in found:
        return FAILED
    return LACKING if strict and "lacks" in found else 0


def describe(level: str, findings: "Sequence[MachineFinding]") -> str:
    """Return the findings as text: a table, then the cost and the remedy of each lack."""
    from kedge.cli.output.printers import table

    rows = [(each.name, each.status, each.found) for each in findings]
    parts = [table([("CHECK", "STATUS", "FOUND"), *rows])]
    for each in findings:
        if each.status != "ok":
            mend = f"\n  mend:  {each.mend}" if each.mend else ""
            parts.append(f"{each.name}: {each.found}\n  cost:  {each.cost}{mend}")
    return "\n\n".join([*parts, _verdict(level, findings)])


def coloured(text: str, findings: "Sequence[MachineFinding]") -> str:
    """Return the text with the status of each check in its colour."""
    import sys

    from kedge.cli.output.colour import painted

    head, *lines = text.split("\n")
    for number, each in enumerate(findings):
        status = painted(each.status, COLOURS[each.status], sys.stdout)
        name, rest = lines[number][: len(each.name)], lines[number][len(each.name) :]
        lines[number] = name + rest.replace(each.status, status, 1)
    return "\n".join([head, *lines])


def _verdict(level: str, findings: "Sequence[MachineFinding]") -> str:
    if any(each.status == "failed" for each in findings):
        return "A cluster cannot run here."
    return f'A cluster can run here, with the level "{level}".'
