import json
import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from kedge.cli.doctor import command
from kedge.cli.doctor.findings import MachineFinding

OK = MachineFinding("kernel", "ok", "6.1")
LACKS = MachineFinding("disk", "lacks", "12 MiB free", "images may not fit", "free space")
FAILED = MachineFinding("clock", "failed", "1970", "certificates are not valid yet")


def test_each_lack_has_its_cost_and_its_remedy() -> None:
    assert command.describe("userns", [OK, LACKS]).split("\n\n") == [
        "CHECK    STATUS   FOUND\nkernel   ok       6.1\ndisk     lacks    12 MiB free",
        "disk: 12 MiB free\n  cost:  images may not fit\n  mend:  free space",
        'A cluster can run here, with the level "userns".',
    ]
    assert command.describe("full", [OK, FAILED]).endswith(
        "cost:  certificates are not valid yet\n\nA cluster cannot run here."
    )


def test_a_terminal_shows_each_status_in_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    text = command.describe("full", [OK, LACKS, FAILED])
    assert command.coloured(text, [OK, LACKS, FAILED]) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = command.coloured(text, [OK, LACKS, FAILED]).splitlines()
    assert lines[1] == "kernel   \x1b[32mok\x1b[0m       6.1"
    assert lines[2] == "disk     \x1b[33mlacks\x1b[0m    12 MiB free"
    assert lines[3] == "clock    \x1b[31mfailed\x1b[0m   1970"
    assert "\n".join(lines[4:]) == "\n".join(text.splitlines()[4:])


@pytest.mark.parametrize(
    ("findings", "usual", "strict"),
    [([OK], 0, 0), ([OK, LACKS], 0, 2), ([LACKS, FAILED], 1, 1)],
)
def test_the_exit_code_tells_whether_a_cluster_can_run(
    findings: list[MachineFinding], usual: int, strict: int
) -> None:
    assert command.exit_code(findings, strict=False) == usual
    assert command.exit_code(findings, strict=True) == strict


def test_this_machine_is_diagnosed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert command.run(Namespace(pod="", output="json", strict=False, config=None)) in (
        0,
        command.FAILED,
    )
    said = json.loads(capsys.readouterr().out)
    assert said["level"] in ("full", "userns", "plain")
    checks = {each["name"]: each for each in said["checks"]}
    assert str(tmp_path) in checks["disk"]["found"]
    assert checks["kernel"]["found"] == os.uname().release
