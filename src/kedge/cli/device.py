"""`kedge device`: takes a device plugin or a driver through its life, without a cluster."""

import argparse
import shlex
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any, Final

from kedge.cli.failure import Failure
from kedge.settings import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kedge.deviceplugin.check.run import Finding

DESCRIPTION: Final = """\
Test a device plugin of the API v1beta1: registration, device lists, allocation, container starts,
and restarts of the kubelet and of the plugin. This needs neither a cluster nor privileges.
docs/device-plugins.md describes the duties of a device plugin.

With --driver, test a driver for Dynamic Resource Allocation: registration, ResourceSlices, claims,
health and restarts. An API server runs during the test; the variables KUBECONFIG and NODE_NAME lead
the driver to it. docs/dynamic-resource-allocation.md describes the duties of a driver.

The exit code is 1 if a check failed."""
EXAMPLES: Final = """\
  # Wait for a plugin that registers in this directory
  kedge device check /tmp/plugins

  # Start the plugin, and test that it can be killed and restarted
  kedge device check /tmp/plugins --run 'python plugin.py /tmp/plugins'

  # In CI: only failed checks, as JSON
  kedge device check /tmp/plugins --run ./plugin -o json \\
      | jq '.findings[] | select(.verdict == "fail")'

  # A driver for Dynamic Resource Allocation, with parameters in its claims
  kedge device check /tmp/kubelet --driver --run 'python driver.py /tmp/kubelet' \\
      --parameters '{"mode": "fast"}'

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
        "--driver",
        action="store_true",
        help="test a driver for Dynamic Resource Allocation; SOCKET_DIR is the kubelet's directory",
    )
    check.add_argument(
        "--parameters",
        type=parameters,
        default={},
        metavar="JSON",
        help="with --driver: opaque parameters of the claims, a JSON object",
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


def parameters(value: str) -> dict[str, Any]:
    import json

    try:
        found = json.loads(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError("the parameters are no JSON object")
    return found


def run(wanted: Namespace) -> int:
    """Check, tell, and return the exit code."""
    import asyncio

    from kedge.deviceplugin.check.bench import DirectoryInUse
    from kedge.deviceplugin.check.scenario import ScenarioResult

    plain = wanted.output is None
    work = _driver_check if wanted.driver else _plugin_check
    try:
        findings = asyncio.run(work(wanted, tell if plain else _silent))
    except DirectoryInUse as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or wanted.directory}: {error.strerror}") from error
    print(summary(findings) if plain else as_json(findings))
    return 1 if any(each.verdict is ScenarioResult.FAIL for each in findings) else 0


async def _driver_check(wanted: Namespace, report: "Callable[[Finding], None]") -> "list[Finding]":
    from kedge.deviceplugin.check.run import run_scenarios
    from kedge.dra.check.driver_bench import NODE, DriverBench
    from kedge.dra.check.scenarios import scenario
    from kedge.machinery.clock import SystemClock

    bench = DriverBench(
        directory=wanted.directory.absolute(),
        clock=SystemClock(),
        patience=wanted.wait,
        parameters=wanted.parameters,
        command=wanted.run,
    )
    if not wanted.run:
        bench.ready = lambda: print(
            f"Start the driver with KUBECONFIG={bench.kubeconfig} NODE_NAME={NODE}",
            file=sys.stderr,
        )
    return await run_scenarios(scenario, bench, report)


async def _plugin_check(wanted: Namespace, report: "Callable[[Finding], None]") -> "list[Finding]":
    from kedge.deviceplugin.check.bench import PluginBench
    from kedge.deviceplugin.check.run import check
    from kedge.machinery.clock import SystemClock

    bench = PluginBench(
        directory=wanted.directory,
        clock=SystemClock(),
        patience=wanted.wait,
        resource=wanted.resource,
        env={name: value for each in wanted.env for name, value in each.items()},
        command=wanted.run,
    )
    if wanted.output is None and not wanted.run:
        print(f"Waiting for a plugin to register at {bench.socket} ...", file=sys.stderr)
    return await check(bench, report)


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

    from msgspec.structs import asdict

    from kedge.deviceplugin.check.run import count
    from kedge.deviceplugin.check.scenario import ScenarioResult

    counted = {each.value: count(findings, each) for each in ScenarioResult}
    return json.dumps({"summary": counted, "findings": [asdict(f) for f in findings]}, indent=2)
