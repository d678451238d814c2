from pathlib import Path

import pytest

from kedge.node.runtime.cri import oom_score


@pytest.mark.parametrize(
    ("capabilities", "lowest"), [("000001ffffffffff", -1000), ("000001fffeffffff", 7)]
)
def test_only_some_may_have_lower_scores(tmp_path: Path, capabilities: str, lowest: int) -> None:
    (tmp_path / "status").write_text(
        f"Name:\tkedge\nCapPrm:\t000001ffffffffff\nCapEff:\t{capabilities}\n"
    )
    (tmp_path / "oom_score_adj").write_text("7\n")
    assert oom_score.lowest(tmp_path) == lowest


def test_this_process_has_a_lowest_score() -> None:
    assert -1000 <= oom_score.lowest() <= 1000
