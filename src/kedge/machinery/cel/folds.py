"""Loops: one closure per macro, with the cost of each of its steps."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from kedge.machinery.cel.errors import CelBudgetError, CelError
from kedge.machinery.cel.operators import has_key, shown_key
from kedge.machinery.cel.run import Run, no_overload

Closure = Callable[[Run], Any]
_END: Final = object()


class FoldParts(NamedTuple):
    """The closures that a loop is made of, and where its variables stand."""

    range: Closure
    slot: int
    slot2: int | None
    test: Closure | None
    element: Closure | None
    key: Closure | None
    element_price: int


def compile_fold(macro: str, parts: FoldParts) -> Closure:
    """Return the closure of a loop."""
    return _MAKERS[macro](parts)


def _walked(values: Any, parts: FoldParts, run: Run) -> Iterator[None]:
    """Set the loop's variables to each element in turn."""
    slots, one, two = run.values, parts.slot, parts.slot2
    if isinstance(values, list):
        if two is None:
            for value in values:
                slots[one] = value
                yield
        else:
            for i, value in enumerate(values):
                slots[one], slots[two] = i, value
                yield
    elif isinstance(values, dict):
        for key in values:
            slots[one] = key
            if two is not None:
                slots[two] = values[key]
            yield
    else:
        raise no_overload()


def _quantifier(parts: FoldParts, decisive: bool) -> Closure:
    """Return `all` (decided by false) or `exists` (decided by true).

    Before each step cel-go looks whether the result is decided: 2 or 3 units. The step itself
    reads the result (1 unit) and evaluates the test.
    """
    range, test, slot, slot2 = parts.range, parts.test, parts.slot, parts.slot2
    assert test is not None
    look = 3 if decisive else 2
    undecided = not decisive

    def quantifier(run: Run) -> bool:
        values = range(run)
        failure: CelError | None = None
        if slot2 is None and isinstance(values, list | dict):
            elements: Iterator[Any] = iter(values)
            slots, single = run.values, True
        else:
            elements, slots, single = _walked(values, parts, run), run.values, False
        for element in elements:
            if single:
                slots[slot] = element
            run.cost += look + 1
            if run.cost > run.next_check:
                run.check()
            try:
                truth = test(run)
            except CelBudgetError:
                raise
            except CelError as error:
                failure = failure or error
                continue
            if truth is decisive:
                if next(elements, _END) is not _END:
                    run.cost += look
                run.cost += 1
                return bool(decisive)
            if truth is not undecided:
                failure = failure or no_overload()
        run.cost += 1
        if failure is not None:
            raise failure
        return undecided

    return quantifier


def _all(parts: FoldParts) -> Closure:
    return _quantifier(parts, decisive=False)


def _exists(parts: FoldParts) -> Closure:
    return _quantifier(parts, decisive=True)


def _exists_one(parts: FoldParts) -> Closure:
    range, test = parts.range, parts.test
    assert test is not None

    def exists_one(run: Run) -> bool:
        count = 0
        for _ in _walked(range(run), parts, run):
            truth = test(run)
            if truth is True:
                count += 1
                run.cost += 2
            elif truth is False:
                run.cost += 1
            else:
                raise no_overload()
            if run.cost > run.next_check:
                run.check()
        run.cost += 2
        return count == 1

    return exists_one


def _holds(test: Closure | None, run: Run) -> bool:
    if test is None:
        return True
    truth = test(run)
    if truth is True or truth is False:
        return bool(truth)
    raise no_overload()


def _list(parts: FoldParts) -> Closure:
    range, test, element = parts.range, parts.test, parts.element
    assert element is not None
    price = 2 + parts.element_price

    def collected(run: Run) -> list[Any]:
        made: list[Any] = []
        for _ in _walked(range(run), parts, run):
            if _holds(test, run):
                run.cost += price
                if run.cost > run.next_check:
                    run.check()
                made.append(element(run))
            else:
                run.cost += 1
                if run.cost > run.next_check:
                    run.check()
        run.cost += 1
        return made

    return collected


def _map(parts: FoldParts) -> Closure:
    range, test, element, key = parts.range, parts.test, parts.element, parts.key
    assert element is not None

    def inserted(run: Run) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for _ in _walked(range(run), parts, run):
            if not _holds(test, run):
                run.cost += 1
                if run.cost > run.next_check:
                    run.check()
                continue
            run.cost += 2
            if run.cost > run.next_check:
                run.check()
            pairs = element(run).items() if key is None else [(key(run), element(run))]
            for name, value in pairs:
                if has_key(made, name):
                    raise CelError(f"insert failed: key {shown_key(name)} already exists")
                made[name] = value
        run.cost += 1
        return made

    return inserted


_MAKERS: Final[dict[str, Callable[[FoldParts], Closure]]] = {
    "all": _all,
    "exists": _exists,
    "exists_one": _exists_one,
    "list": _list,
    "map": _map,
}
