"""Indexes of a job written as text: `0,2-5`."""

from collections.abc import Iterator


def parse(text: str, completions: int) -> list[range]:
    """The intervals that the text lists; ValueError in upstream's words if it is out of order."""
    found: list[range] = []
    for part in text.split(",") if text else ():
        interval = _interval(part, completions)
        if found and found[-1][-1] >= interval[0]:
            why = f"non-increasing order, previous: {found[-1][-1]}, current: {interval[0]}"
            raise ValueError(why)
        found.append(interval)
    return found


def count(intervals: list[range]) -> int:
    return sum(map(len, intervals))


def overlap(some: str, others: str, completions: int) -> int | None:
    """Return the lowest index in both texts; unreadable parts are ignored."""
    ones = sorted(_readable(some, completions), key=lambda each: each.start)
    twos = sorted(_readable(others, completions), key=lambda each: each.start)
    i = j = 0
    while i < len(ones) and j < len(twos):
        first, stop = max(ones[i].start, twos[j].start), min(ones[i].stop, twos[j].stop)
        if first < stop:
            return first
        # The interval that ends first overlaps no later one.
        if ones[i].stop <= twos[j].stop:
            i += 1
        else:
            j += 1
    return None


def _readable(text: str, completions: int) -> Iterator[range]:
    for part in text.split(",") if text else ():
        try:
            yield _interval(part, completions)
        except ValueError:
            continue


def _interval(part: str, completions: int) -> range:
    ends = part.split("-")
    if len(ends) > 2:
        why = (
            f'the fragment "{part}" violates the requirement that an index interval '
            "can have at most two parts separated by '-'"
        )
        raise ValueError(why)
    first = _index(ends[0], completions)
    if len(ends) == 1:
        return range(first, first + 1)
    last = _index(ends[1], completions)
    if first >= last:
        raise ValueError(f"non-increasing order, previous: {first}, current: {last}")
    return range(first, last + 1)


def _index(text: str, completions: int) -> int:
    if not (text.isascii() and text.removeprefix("+").isdigit()):
        raise ValueError(f'cannot convert string to integer for index: "{text}"')
    if len(text.lstrip("+0")) > 10 or int(text) >= completions:
        raise ValueError(f'too large index: "{text}"')
    return int(text)
