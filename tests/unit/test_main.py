"""The entry point: elsewhere than on Linux it says what to do, before it imports anything."""

import sys

import pytest

from kedge.__main__ import main


def test_other_systems_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert main() == 1
    assert "pods need the kernel of Linux, and this is darwin" in capsys.readouterr().err
