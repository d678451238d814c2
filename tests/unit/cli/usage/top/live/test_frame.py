"""Frames of the live view."""

import pytest

from kedge.cli.output.plot import ASCII, UNICODE
from kedge.cli.usage.top.live.frame import Scene, frame, help_lines, shown, wrapped
from kedge.cli.usage.top.live.screen_lines import ScreenSize, TextRole
from kedge.cli.usage.top.live.text_cells import width
from kedge.cli.usage.top.live.usage_course import TickUsage, UsageCourse
from kedge.cli.usage.top.live.usage_rows import NO_NODE, UsageAmount, UsageRow
from kedge.cli.usage.top.live.view_state import Level, Mode, Place, ViewState, settled

SPACE = ScreenSize(12, 100)
PODS = ViewState(place=Place(Level.PODS, node="node-1"))
CONTAINERS = ViewState(place=Place(Level.CONTAINERS, node="node-1", pod="shop/web"))


def row(name: str) -> UsageRow:
    return UsageRow(f"shop/{name}", "shop", name, "Running", cpu=UsageAmount(0.2, 0.1, 0.5))


SCENE = Scene(rows=[row("web"), row("db")], end=1000, time="18:20:10")


def drawn(state: ViewState = PODS, scene: Scene = SCENE, space: ScreenSize = SPACE) -> list[str]:
    return [line.text.rstrip() for line in frame(state, scene, space, UNICODE)]


def test_a_frame_has_title_message_table_and_keys() -> None:
    lines = drawn()
    assert lines[0].startswith("kedge top node-1 › all namespaces  ")
    assert lines[0].endswith("  mean of 1m  by cpu  18:20:10")
    assert lines[1] == "2 pods"
    assert lines[2].split()[:2] == ["NAMESPACE", "POD"]
    assert [each.split()[1] for each in lines[3:5]] == ["web", "db"]
    assert lines[-1].startswith("Enter open")
    assert lines[-1].endswith("? help  q quit")
    assert len(lines) == SPACE.height


@pytest.mark.parametrize("height", range(1, 12))
@pytest.mark.parametrize("cells", [1, 5, 20, 47, 100])
@pytest.mark.parametrize("state", [PODS, CONTAINERS, PODS._replace(mode=Mode.HELP)])
def test_a_frame_is_never_larger_than_the_screen(height: int, cells: int, state: ViewState) -> None:
    lines = drawn(state, space=ScreenSize(height, cells))
    assert len(lines) <= height
    assert all(width(line) <= cells for line in lines)


def test_a_narrow_footer_keeps_the_help_and_the_way_out() -> None:
    assert drawn(space=ScreenSize(12, 40))[-1] == "Enter open  Esc back  ? help  q quit"


def test_one_line_is_selected() -> None:
    state = PODS._replace(place=PODS.place._replace(selected="shop/db", position=1))
    lines = frame(state, SCENE, SPACE, UNICODE)
    assert [number for number, line in enumerate(lines) if line.is_selected] == [4]


def test_only_lines_on_the_screen_are_drawn() -> None:
    many = [row(f"pod-{number:05}") for number in range(5000)]
    place = PODS.place._replace(selected="shop/pod-04000")
    scene = SCENE._replace(rows=many)
    state = settled(PODS._replace(place=place), shown(PODS, scene, SPACE))
    names = [line.split()[1] for line in drawn(state, scene)[3:-1]]
    assert names == [f"pod-{number:05}" for number in range(3993, 4001)]


@pytest.mark.parametrize(
    ("state", "scene", "message", "role"),
    [
        (PODS, SCENE._replace(trouble="Connection lost"), "Connection lost", TextRole.BAD),
        (PODS._replace(notice="No."), SCENE._replace(note="Less."), "No.", TextRole.WARNING),
        (PODS, SCENE._replace(note="You may not"), "You may not", TextRole.WARNING),
        (PODS, SCENE._replace(rows=[row("a")]), "1 pod", TextRole.DIM),
        (ViewState(), SCENE._replace(rows=[row("a"), UsageRow(NO_NODE)]), "1 node", TextRole.DIM),
        (
            PODS._replace(place=PODS.place._replace(filter="w")),
            SCENE,
            '2 pods with "w"',
            TextRole.DIM,
        ),
        (PODS, SCENE._replace(trouble="\x1b[2Jgone"), "gone", TextRole.BAD),
    ],
)
def test_the_most_important_message_is_shown(
    state: ViewState, scene: Scene, message: str, role: TextRole
) -> None:
    line = frame(state, scene, SPACE, UNICODE)[1]
    assert (line.text, line.spans[0].role) == (message, role)


def test_the_filter_is_shown_while_it_is_typed() -> None:
    state = PODS._replace(mode=Mode.FILTER, place=PODS.place._replace(filter="we"))
    assert drawn(state)[1] == "/we▏"
    assert drawn(state)[-1] == "Enter keep  Esc clear"


def test_an_empty_table_says_why() -> None:
    nothing = SCENE._replace(rows=[], empty="There are no pods.")
    assert drawn(scene=nothing)[3] == "There are no pods."
    state = PODS._replace(place=PODS.place._replace(filter="x"))
    assert drawn(state, nothing)[3] == 'No line contains "x": Esc clears the filter.'


def test_a_paused_view_says_so() -> None:
    assert "PAUSED" in drawn(PODS._replace(paused=True))[0]
    assert "PAUSED" not in drawn()[0]


# Plots.


LARGE = ScreenSize(24, 120)


def plotted(window: str, space: ScreenSize = LARGE) -> list[str]:
    course = UsageCourse()
    course.take(1000, TickUsage(0.2, 5e7))
    scene = SCENE._replace(rows=[row("main")], courses={"shop/main": course})
    return drawn(CONTAINERS._replace(window=window), scene, space)


def test_a_container_has_plots_with_its_request_and_limit() -> None:
    lines = plotted("1m")
    assert " ".join(lines[-10].split()) == "cpu of main, last 1m memory of main, last 1m"
    assert lines[-9].startswith("0.50 ┤╌╌")
    assert " limit" in lines[-9]
    assert any("╌ request" in line for line in lines)
    assert lines[-2].split() == ["-1m", "now", "-1m", "now"]


def test_a_narrow_terminal_has_one_plot_and_a_low_one_none() -> None:
    assert "memory of" not in "\n".join(plotted("1h", ScreenSize(24, 80)))
    assert "cpu of main, last 1h" in "\n".join(plotted("1h", ScreenSize(24, 80)))
    assert "last 1h" not in "\n".join(plotted("1h", ScreenSize(16, 120)))


def test_a_plot_without_points_says_so() -> None:
    assert "not measured yet" in "\n".join(plotted("1d"))


# Text.


TEXT = SCENE._replace(text=[f"line {number}" for number in range(100)])
LOGS = PODS._replace(mode=Mode.LOGS, subject="shop/web")


def test_logs_show_their_end() -> None:
    lines = drawn(LOGS, TEXT)
    assert "logs shop/web" in lines[0]
    assert lines[2:-1] == [f"line {number}" for number in range(91, 100)]


def test_scrolled_text_begins_at_its_line() -> None:
    assert drawn(LOGS._replace(pane_top=10), TEXT)[2] == "line 10"
    assert drawn(LOGS._replace(pane_top=1000), TEXT)[2] == "line 91"


def test_long_lines_are_wrapped() -> None:
    assert wrapped("abcdefgh", 3) == ["abc", "def", "gh"]
    assert wrapped("日本語", 4) == ["日本", "語"]
    assert wrapped("", 4) == [""]
    text = TEXT._replace(text=["x" * 150])
    assert drawn(LOGS, text)[2:4] == ["x" * 100, "x" * 50]


def test_the_help_is_shown_whole() -> None:
    lines = drawn(PODS._replace(mode=Mode.HELP, pane_top=0), space=ScreenSize(40, 120))
    assert lines[2 : 2 + len(help_lines())] == [each.rstrip() for each in help_lines()]


def test_a_terminal_without_utf_8_gets_ascii() -> None:
    scene = SCENE._replace(rows=[row("wéb")], note="désolé")
    for state in (PODS, CONTAINERS, PODS._replace(mode=Mode.FILTER), LOGS):
        lines = frame(state, scene, ScreenSize(24, 120), ASCII)
        assert all(line.text.isascii() for line in lines)
