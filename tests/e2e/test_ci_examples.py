"""examples/ci: the files are what GitHub and GitLab read, and every shell step in them works."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.e2e.transcripts import provide_kedge

if TYPE_CHECKING:
    from tests.e2e.conftest import Terminal

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GITHUB = EXAMPLES / "ci" / "github"
ACTION = "./.github/actions/kedge"
TESTS = """
import pytest

@pytest.mark.kedge(nodes=0)
def test_a_cluster(kedge_fresh_cluster):
    assert kedge_fresh_cluster.get("ns/default")["kind"] == "Namespace"
"""
OUTSIDE = {"actions/checkout@v4", "actions/setup-python@v5"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def action_steps() -> list[str]:
    """The shell steps of the action without inputs; a step with a condition is left out."""
    action = read(GITHUB / "action.yml")
    assert action["runs"]["using"] == "composite"
    steps = action["runs"]["steps"]
    assert all(each["shell"] == "bash" for each in steps)
    assert [each["if"] for each in steps if "if" in each] == ["inputs.cluster == 'true'"]
    return [each["run"] for each in steps if "if" not in each]


def github_steps(job: str) -> list[str]:
    workflow = read(GITHUB / "workflow.yml")
    assert workflow[True] == ["push", "pull_request"], "YAML reads the word on as true"
    found: list[str] = []
    for step in workflow["jobs"][job]["steps"]:
        if "uses" in step:
            assert step["uses"] in {ACTION, *OUTSIDE}
        found += [step["run"]] if "run" in step else []
        found += action_steps() if step.get("uses") == ACTION else []
    return found


def gitlab_steps(job: str) -> list[str]:
    return list(read(EXAMPLES / "ci" / "gitlab.yml")[job]["script"])


@pytest.mark.parametrize("job", ["python", "other-languages"])
def test_the_steps_of_a_job_work(job: str, terminal: Terminal) -> None:
    checkout = terminal.home / "checkout"
    checkout.mkdir()
    (checkout / "test_controller.py").write_text(TESTS)
    (checkout / "Makefile").write_text("test:\n\tkubectl get namespace default -o name\n")
    commands = provide_kedge(terminal.home)
    # Everything is installed already.
    (commands / "pip").write_text('#!/bin/sh\necho "$@" >> pip.log\n')
    (commands / "pip").chmod(0o755)
    here = os.path.dirname(sys.executable)
    terminal.environment["PATH"] = f"{commands}:{here}:{terminal.environment['PATH']}"
    said = ""
    # A step of both is tried once.
    for step in dict.fromkeys((*github_steps(job), *gitlab_steps(job))):
        done = terminal.run("bash", "-eo", "pipefail", "-c", f"cd {checkout}\n{step}")
        assert done.returncode == 0, done.stdout + done.stderr
        said += done.stdout
    assert (checkout / "pip.log").read_text().startswith("install kedge\n")
    assert ("1 passed" if job == "python" else "namespace/default") in said
