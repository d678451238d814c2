"""`kedge device`: takes a device plugin through its life, without a cluster."""

import argparse
import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from kedge.cli.failure import Failure
from kedge.settings import parse

if TYPE_CHECKING:
    from kedge.deviceplugin.check.run import Finding

DESCRIPTION: Final = """\
Test a device plugin of the API v1beta1: registration, device lists, allocation, container starts,
and restarts of the kubelet and of the plugin. This needs neither a cluster nor privileges.
docs/device-plugins.md describes the duties of a device plugin.

The exit code is 1 if a check failed."""
EXAMPLES: Final = """\
  # Wait for a plugin that registers in this directory
  kedge device check /tmp/plugins

  # Start the plugin, and test that it can be killed and restarted
  kedge device check /tmp/plugins --run 'python plugin.py /tmp/plugins'

  # In CI: only failed checks, as JSON
  kedge device check /tmp/plugins --run ./plugin -o json \\
      | jq '.findings[] | select(.verdict == "fail")'

  # A plugin that needs certain variables of the container
  kedge device check /tmp/plugins --env FPGA_REGION_1=ce48969398f05f33946d560708be108a"""


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="check", required=True)
    check = below.add_parser("check", help="test a device plugin", allow_abbrev=False)
    check.add_argument(
        "directory", type=parse.directory, metavar="SOCKET_DIR", help="where the plugin registers"
    )
    check.add_argument(
        "--run",
        type=command,
        default=(),
        metavar="COMMAND",
        help="start the plugin with this command, and also stop, kill and restart it",
    )
    check.add_argument(
        "--resource", default="", metavar="NAME", help="resource to check, if several register"
    )
    check.add_argument(
        "--env",
        action="append",
        type=parse.pairs,
        default=[],
        metavar="NAME=VALUE,...",
        help="variables of the containers that start; may be repeated",
    )
    check.add_argument(
        "--wait",
        type=parse.seconds,
        default=30.0,
        metavar="DURATION",
        help="how long to wait until the plugin registers (default: 30s)",
    )
    check.add_argument("-o", "--output", choices=("json",), help="print JSON, for programs")


def command(value: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f'"{value}" is no command: {error}') from error
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    return words


def run(wanted: Namespace) -> int:
    """Check, tell, and return the exit code."""
    import asyncio

    from kedge.deviceplugin.check.bench import DirectoryInUse, PluginBench
    from kedge.deviceplugin.check.run import check
    from kedge.deviceplugin.check.scenario import ScenarioResult
    from kedge.machinery.clock import SystemClock

    bench = PluginBench(
        directory=wanted.directory,
        clock=SystemClock(),
        patience=wanted.wait,
        resource=wanted.resource,
        env={name: value for each in wanted.env for name, value in each.items()},
        command=wanted.run,
    )
    plain = wanted.output is None
    if plain and not wanted.run:
        print(f"Waiting for a plugin to register at {bench.socket} ...", file=sys.stderr)
    try:
        findings = asyncio.run(check(bench, tell if plain else _silent))
    except DirectoryInUse as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or bench.socket}: {error.strerror}") from error
    print(summary(findings) if plain else as_json(findings))
    return 1 if any(each.verdict is ScenarioResult.FAIL for each in findings) else 0


def _silent(finding: "Finding") -> None:
    pass


def tell(finding: "Finding") -> None:
    detail = f": {finding.detail}" if finding.detail else ""
    print(f"{finding.verdict:<5}{finding.group:<13} {finding.title}{detail}", flush=True)


def summary(findings: "list[Finding]") -> str:
    from kedge.deviceplugin.check.run import count
    from kedge.deviceplugin.check.scenario import ScenarioResult

    counted = ", ".join(f"{count(findings, each)} {each}" for each in ScenarioResult)
    return f"\n{len(findings)} scenarios in {sum(f.seconds for f in findings):.1f} s: {counted}"


def as_json(findings: "list[Finding]") -> str:
    import json
    from dataclasses import asdict

    from kedge.deviceplugin.check.run import count
    from kedge.deviceplugin.check.scenario import ScenarioResult

    counted = {each.value: count(findings, each) for each in ScenarioResult}
    return json.dumps({"summary": counted, "findings": [asdict(f) for f in findings]}, indent=2)
