"""`kedge device check` as it is typed and as it answers."""

import json
import sys
from pathlib import Path

import pytest

from kedge.cli import main

PLUGIN = """
import sys
from kedge.deviceplugin import Device, Plugin

class Gadgets(Plugin):
    resource = "example.com/gadget"
    def devices(self):
        return [Device("g-0"), Device("g-1")]

Gadgets().run(sys.argv[1])
"""


def test_a_plugin_is_started_checked_and_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script, directory = tmp_path / "plugin.py", tmp_path / "plugins"
    script.write_text(PLUGIN)
    command = f"{sys.executable} {script} {directory}"
    code = main.run(["device", "check", str(directory), f"--run={command}", "-o=json"])
    report = json.loads(capfd.readouterr().out)
    assert (code, report["summary"]["fail"], report["summary"]["warn"]) == (0, 0, 0)
    last = report["findings"][-1]
    assert (last["verdict"], last["group"]) == ("ok", "restarts")
    assert sum(each["seconds"] for each in report["findings"]) < 20


def test_progress_is_shown_and_a_failure_is_the_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["device", "check", str(tmp_path), "--run=false", "--wait=10s"]
    assert main.run(words) == 1
    said = capfd.readouterr().out
    assert said.startswith("fail registration  registers: no registration")
    assert "1 fail" in said.splitlines()[-1]


def test_a_command_must_make_sense(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.run(["device", "check", str(tmp_path), "--run='"])
    assert "is no command" in capfd.readouterr().err
