"""`kedge simulate`: its table, its JSON, its page and its errors."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kedge.cli.main import run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lines = []
    for number in range(30):
        items = [
            {
                "namespace": "default",
                "name": f"web-{each}",
                "usage": {"cpu": f"{100 * each}m", "memory": "64Mi"},
                "requests": {"cpu": "100m"},
            }
            for each in range(min(number, 6))
        ]
        lines.append(json.dumps({"time": f"2026-11-15T06:{number:02}:00Z", "items": items}))
    path = tmp_path / "day.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_a_table_compares_three_ways(trace: Path, capsys: Captured) -> None:
    assert run(["simulate", "--nodes", "2", "--trace", str(trace), "--weights", "NodeUsage=5"]) == 0
    heading, *rows = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["PLACED", "BY", "SPREAD"]
    assert [row.split()[0] for row in rows] == ["requests", "usage", "weights"]


def test_json_has_the_same_numbers(trace: Path, capsys: Captured) -> None:
    assert run(["simulate", "--nodes", "2", "--trace", str(trace), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["pods"], found["nodes"]) == (6, 2)
    assert found["results"][0]["placedBy"] == "requests"


def test_the_page_needs_nothing_else(trace: Path, tmp_path: Path, capsys: Captured) -> None:
    page = tmp_path / "day.html"
    flags = ["--nodes", "2", "--trace", str(trace), "--page", str(page)]
    assert run(["simulate", *flags]) == 0
    text = page.read_text()
    assert "http" not in text
    assert "<script" not in text
    assert text.count("<svg") == 5
    for plot in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + plot.partition("</svg>")[0] + "</svg>")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--nodes", "0"], "must be 1 to"),
        (["--nodes", "nowhere.json"], "cannot read nowhere.json"),
        (["--nodes", "2", "--node-cpu", "0"], "must be above 0"),
        (["--nodes", "2", "--weights", "x=1"], "is not SCORE=WEIGHT"),
    ],
)
def test_wrong_flags_are_explained(
    trace: Path, capsys: Captured, flags: list[str], why: str
) -> None:
    assert run(["simulate", "--trace", str(trace), *flags]) == 1
    assert why in capsys.readouterr().err


def test_a_file_that_is_no_trace_is_named(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    assert run(["simulate", "--nodes", "1", "--trace", str(path)]) == 1
    assert f"{path}: the trace is neither" in capsys.readouterr().err
