from pathlib import Path

import pytest

from kedge.controllers import names
from kedge.controllers.controllers import Controllers
from kedge.controllers.names import UnknownController, disabled, enabled
from kedge.testing.local_server import LocalServer

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "controllers.md"


def test_a_star_means_all_and_a_minus_leaves_one_out() -> None:
    assert enabled(["*"]) == names.ALL
    assert disabled(enabled(["*", "-statefulset-controller"])) == ("statefulset-controller",)


def test_without_a_star_only_those_run_that_are_named() -> None:
    assert enabled(["job-controller", "cronjob-controller"]) == (
        "job-controller",
        "cronjob-controller",
    )
    assert enabled(["-job-controller"]) == enabled([]) == ()


def test_the_names_before_1_28_are_understood() -> None:
    assert enabled(["endpoint", "podgc"]) == (
        "pod-garbage-collector-controller",
        "endpoints-controller",
    )
    assert disabled(enabled(["*", "-statefulset"])) == ("statefulset-controller",)


def test_the_first_word_on_a_controller_counts() -> None:
    assert enabled(["job", "-job"]) == ("job-controller",)
    assert disabled(enabled(["-job", "job", "*"])) == ("job-controller",)


@pytest.mark.parametrize("name", ["stateful", "-stateful", "", "-", "**"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownController, match=f"^{name.removeprefix('-')}".replace("*", "[*]")):
        enabled(["*", name])


def test_every_name_is_documented() -> None:
    text = DOCS.read_text()
    for name, alias in names.ALIASES.items():
        assert f"`{name}`" in text, name
        assert f"`{alias}`" in text, alias


async def test_what_is_not_named_is_not_made() -> None:
    async with LocalServer.running() as server:

        def made(chosen: tuple[str, ...]) -> int:
            controllers = Controllers(
                server.client,
                server.clock,
                b"",
                lambda *_: "",
                lambda *_: b"",
                admission=("LimitRanger",),
                enabled=chosen,
            )
            return len(controllers._controllers)

        elsewhere = (names.SCHEDULER, names.POLICY_STATUS)
        every = tuple(name for name in names.ALL if name not in elsewhere)
        assert made(names.ALL) == len(every)
        assert [made((name,)) for name in every] == [1] * len(every)
        assert made(()) == 0
