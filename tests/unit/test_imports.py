"""Imports take most of the time of `kedge up`, and most of the memory of an idle cluster."""

import subprocess
import sys

import pytest

RARE = {
    "calendar": "kedge.machinery.certificates reads dates",
    "cryptography": "a new cluster's keys are made by a process that ends (issuer_process)",
    "csv": "few servers have a file of tokens",
    "curses": "only the live view of kedge top draws on a terminal",
    "difflib": "only messages about forbidden changes show differences",
    "email": "kedge.web.http_date writes dates",
    "grpc": "only device plugins and drivers speak it",
    "gzip": "only images and pages are compressed",
    "html": "only proxied pages have links that are rewritten",
    "importlib.resources": "files beside a module have its path",
    "kedge.controllers.controllers": "controllers start when the nodes are ready",
    "kedge.dra.driver": "the library for drivers, which run in processes of their own",
    "kedge.machinery.cel.program": "few clusters have expressions",
    "kedge.machinery.yaml_text": "agents and most clients speak JSON",
    "kedge.node.storage.csi_messages": "few nodes have a CSI driver",
    "kedge.scheduler.scheduler": "the scheduler starts when the nodes are ready",
    "re2": "few clusters have patterns",
    "tarfile": "only pulls read images",
    "tempfile": "only pulls read images",
    "wsgiref": "kedge.web.http_date writes dates",
    "yaml": "agents and most clients speak JSON",
    "zoneinfo": "few clusters have jobs with a time zone",
}
"""Modules that no process imports before it is ready, each with the reason."""
WITHOUT_A_LOOP = (
    "kedge.cli.cluster.up.start",
    "kedge.supervisor.supervisor",
    "kedge.restarter.restarter",
)
"""Processes that do not import asyncio, which takes longer than all modules of `kedge up`."""
MOST = {
    "kedge.control_plane": 566,
    "kedge.node.agent": 464,
    "kedge.cli.cluster.up.start": 46,
    "kedge.supervisor.supervisor": 62,
    "kedge.restarter.restarter": 4,
}
"""The modules of kedge that each process may import for its start. Each takes 0.3 ms and 50 KB.
Before you raise a number, import the new module inside of the function that uses it."""


@pytest.mark.parametrize("process", sorted(MOST))
def test_start_imports_nothing_that_is_rarely_needed(process: str) -> None:
    script = f"import sys, {process}; print(*sys.modules)"
    run = [sys.executable, "-P", "-c", script]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    rare = RARE.keys() & set(loaded)
    assert {each: RARE[each] for each in rare} == {}
    if process in WITHOUT_A_LOOP:
        assert "asyncio" not in loaded
    assert len([each for each in loaded if each.startswith("kedge.")]) <= MOST[process]
