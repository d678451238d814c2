from pathlib import Path
from typing import Any

import pytest
import yaml

from kedge.api.apiextensions_v1 import formats

CASES = yaml.safe_load(Path(__file__).with_name("formats.yaml").read_text())


@pytest.mark.parametrize(("name", "texts"), CASES.items(), ids=CASES)
def test_a_format_takes_what_it_describes(name: str, texts: dict[str, Any]) -> None:
    fits = formats.known(name)
    assert fits is not None
    assert [text for text in texts["good"] if not fits(text)] == []
    assert [text for text in texts["bad"] if fits(text)] == []


def test_a_format_means_something_only_for_its_type() -> None:
    assert formats.recognized("int32", "integer")
    assert formats.recognized("uuid", "string")
    assert not formats.recognized("uuid", "integer")
    assert not formats.recognized("int32", "string")
    assert not formats.recognized("made-up", "string")
