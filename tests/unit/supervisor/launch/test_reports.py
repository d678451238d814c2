"""Which reports about a start are believed."""

import pytest

from kedge.supervisor.launch.reports import LaunchReport, parse


@pytest.mark.parametrize(
    ("content", "report"),
    [
        (b'{"note": "n"}', LaunchReport(note="n")),
        (b'{"error": "e"}', LaunchReport(error="e")),
        (b'{"ready": true}', LaunchReport(is_ready=True)),
    ],
)
@pytest.mark.parametrize("is_trusted", [True, False])
def test_what_concerns_the_start_itself_is_believed(
    content: bytes, report: LaunchReport, is_trusted: bool
) -> None:
    assert parse(content, [], is_trusted=is_trusted) == report


def test_only_the_process_that_was_forked_names_others() -> None:
    assert parse(b'{"pid": 7}', [], is_trusted=True) == LaunchReport(pid=7)
    assert parse(b'{"terminal": true}', [5], is_trusted=True) == LaunchReport(terminal=5)
    assert parse(b'{"pid": 7}', [], is_trusted=False) is None
    assert parse(b'{"terminal": true}', [5], is_trusted=False) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"no", b"[]", b"[" * 60_000, b'{"note": 1}', b'{"ready": 1, "pid": 2}', b'{"other": 1}'],
)
def test_what_nobody_sends_is_refused(content: bytes) -> None:
    assert parse(content, [], is_trusted=True) is None
