"""Long work goes to a thread, short work stays where it is."""

import threading

import pytest

from kedge.apiserver.long_work import LONG, LongWork


async def test_small_input_is_worked_on_at_once() -> None:
    here = threading.get_ident()
    assert await LongWork().run(LONG - 1, threading.get_ident) == here


async def test_large_input_is_worked_on_beside_the_loop() -> None:
    here = threading.get_ident()
    assert await LongWork().run(LONG, threading.get_ident) != here


async def test_what_goes_wrong_in_a_thread_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await LongWork().run(LONG, int, "x")
