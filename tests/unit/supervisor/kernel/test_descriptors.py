import os

import pytest

from kedge.supervisor.kernel import descriptors, libc

LAST = 0xFFFF_FFFF


@pytest.mark.parametrize(
    ("kept", "gaps"),
    [
        ((), [(0, LAST)]),
        ((0,), [(1, LAST)]),
        ((0, 1, 2, 7), [(3, 6), (8, LAST)]),
        ((5, 3, 5, -1), [(0, 2), (4, 4), (6, LAST)]),
    ],
)
def test_everything_between_the_kept_descriptors_is_closed(
    kept: tuple[int, ...], gaps: list[tuple[int, int]]
) -> None:
    assert descriptors.gaps(kept) == gaps


def open_in_a_child(kept: list[int]) -> list[int]:
    """Which of some descriptors are still open after `keep_only` in a process of its own."""
    pid = os.fork()
    if pid == 0:
        descriptors.keep_only(kept)
        code = sum(1 << place for place, number in enumerate(kept) if is_open(number))
        os._exit(code if not any(is_open(each) for each in range(64) if each not in kept) else 255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code != 255, "something else is open"
    return [number for place, number in enumerate(kept) if code >> place & 1]


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_only_the_kept_descriptors_stay_open() -> None:
    one, other = os.pipe()
    assert open_in_a_child([one, other]) == [one, other]
    assert open_in_a_child([other]) == [other]
    assert open_in_a_child([]) == []


def test_descriptors_are_closed_one_by_one_where_the_kernel_has_no_call_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(first: int, last: int) -> None:
        raise OSError(38, "close_range: function not implemented")

    monkeypatch.setattr(libc, "close_range", missing)
    one, _ = os.pipe()
    assert open_in_a_child([one]) == [one]


def test_descriptors_get_the_numbers_that_they_are_to_have() -> None:
    (first, _), (second, _) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        marks = [os.fstat(each).st_ino for each in (first, second)]
        # Each gets the number of the other.
        descriptors.renumber({first: second, second: first})
        moved = [os.fstat(each).st_ino for each in (second, first)]
        is_kept = [os.get_inheritable(each) for each in (first, second)]
        is_alone = not any(is_open(each) for each in range(3, 64) if each not in (first, second))
        os._exit(0 if marks == moved and not any(is_kept) and is_alone else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
