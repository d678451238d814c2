"""Schedules in the form of cron: `*/5 * * * 1-5`, `@daily`, `@every 1h30m`."""

import re

import msgspec

from kedge.machinery import durations

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Schedule(msgspec.Struct, frozen=True):
    """The moments at which something is due."""

    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    """Sunday is 0."""
    any_day: bool = False
    """Whether the day of the month was left open: then the weekday alone decides."""
    any_weekday: bool = False
    every: int = 0
    """Nanoseconds from one moment to the next, if that is all there is to it."""


def parse_schedule(text: str) -> Schedule:
    """The schedule that the text spells; ValueError in upstream's words if it spells none."""
    if not text:
        raise ValueError("empty spec string")
    if text.startswith(("TZ=", "CRON_TZ=")):
        _, space, text = text.partition(" ")
        if not space:
            raise ValueError(
                "invalid schedule format: runtime error: slice bounds out of range [:-1]"
            )
        text = text.strip()
    if text.startswith("@"):
        return _named(text)
    fields = text.split()
    if len(fields) != 5:
        found = " ".join(fields)
        raise ValueError(f"expected exactly 5 fields, found {len(fields)}: [{found}]")
    minutes, _ = _field(fields[0], 0, 59, [])
    hours, _ = _field(fields[1], 0, 23, [])
    days, any_day = _field(fields[2], 1, 31, [])
    months, _ = _field(fields[3], 1, 12, _MONTHS)
    weekdays, any_weekday = _field(fields[4], 0, 6, _DAYS)
    return Schedule(minutes, hours, days, months, weekdays, any_day, any_weekday)


def _named(text: str) -> Schedule:
    if text in _NAMED:
        return parse_schedule(_NAMED[text])
    if not text.startswith("@every "):
        raise ValueError(f"unrecognized descriptor: {text}")
    try:
        # As upstream has it: whole seconds, and one at least.
        length = durations.parse_duration(text.removeprefix("@every "))
    except ValueError as error:
        raise ValueError(f"failed to parse duration {text}: {error}") from None
    second = 10**9
    return Schedule(every=max(second, length - length % second))


def _field(text: str, least: int, most: int, words: list[str]) -> tuple[frozenset[int], bool]:
    """The numbers that a field allows, and whether it was left open with a star."""
    allowed: set[int] = set()
    is_open = False
    for part in filter(None, text.split(",")):
        numbers, star = _range(part, least, most, words)
        allowed |= set(numbers)
        is_open |= star
    return frozenset(allowed), is_open


def _range(text: str, least: int, most: int, words: list[str]) -> tuple[range, bool]:
    ends, *steps = text.split("/")
    low, *high = ends.split("-")
    star = low in ("*", "?")
    if star:
        start, end = least, most
    else:
        start = _number(low, words, least)
        if len(high) > 1:
            raise ValueError(f"too many hyphens: {text}")
        end = _number(high[0], words, least) if high else start
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    step = _number(steps[0], [], 0) if steps else 1
    if steps and not high:
        end = most
    if start < least:
        raise ValueError(f"beginning of range ({start}) below minimum ({least}): {text}")
    if end > most:
        raise ValueError(f"end of range ({end}) above maximum ({most}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")
    return range(start, end + 1, step), star and step == 1


def _number(text: str, words: list[str], first: int) -> int:
    if text.lower() in words:
        return words.index(text.lower()) + first
    if not re.fullmatch("[+-]?[0-9]+", text):
        why = f'strconv.Atoi: parsing "{text}": invalid syntax'
        raise ValueError(f"failed to parse int from {text}: {why}")
    if len(text) > 19:
        why = f'strconv.Atoi: parsing "{text}": value out of range'
        raise ValueError(f"failed to parse int from {text}: {why}")
    if int(text) < 0:
        raise ValueError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)
