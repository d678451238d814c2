"""Mutation tests: put small faults into a module, one at a time, and see whether its tests notice.

Each module is tested by the files that mirror it. pytest collects them once. Every mutant then gets
a fork of that process, in which the code of one function is exchanged and the tests run that call
this function. A mutant costs no imports that way, and no copy of the tree.

    tools/mutate.py --sample 30 --seed 1 storage/sqlite scheduler
"""

import argparse
import functools
import gc
import inspect
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from mutants import Mutant, mutants

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "src" / "kedge"
UNIT: Final = ROOT / "tests" / "unit"
GOAL, GOAL_EACH = 95, 90
"""Percent of the mutants that tests must notice: of all, and of each module."""

PURE: Final = (
    "api/label_selector",
    "api/limits",
    "api/quota",
    "apiserver/authorization",
    "apiserver/managed",
    "controllers/autoscaling/pace",
    "controllers/autoscaling/proposal",
    "controllers/batch/cron_times",
    "controllers/batch/job_backoff",
    "controllers/batch/job_indexes",
    "controllers/disruptions/budget",
    "controllers/workloads/daemon_steps",
    "controllers/workloads/rollout",
    "controllers/workloads/stateful_steps",
    "machinery/durations",
    "machinery/fieldpath",
    "machinery/fields",
    "machinery/jsonpath",
    "machinery/merge",
    "machinery/ownership",
    "machinery/patch",
    "machinery/quantity",
    "machinery/selectors",
    "machinery/strategic",
    "metrics/day_window",
    "metrics/hour_window",
    "metrics/series",
    "metrics/statistics",
    "metrics/windows",
    "node/host/eviction",
    "node/pod/plan",
    "node/pod/restart_policy",
    "node/pod/status/phase",
    "node/pod/status/status",
    "restarter/decision",
    "scheduler/cycle",
    "scheduler/preemption",
    "scheduler/snapshot",
    "storage/sqlite",
)
"""Modules, and packages with all of their modules, that decide and hardly act."""
MORE_TESTS: Final = {
    "api/limits": (
        "unit/api/limits",
        "unit/apiserver/admission/limit_ranger/test_cases.py",
        "unit/apiserver/admission/limit_ranger/test_selectors.py",
    ),
    # The windows against a brute-force reading of all values.
    "metrics/day_window": ("unit/metrics/test_series.py",),
    "metrics/hour_window": ("unit/metrics/test_series.py",),
    "storage/sqlite": (
        "unit/storage/sqlite",
        "contract/test_store.py",
        "unit/storage/test_compaction.py",
    ),
}
"""Tests of modules and packages besides those in the file that mirrors a module."""
EQUIVALENT: Final = Path(__file__).with_name("equivalent_mutants.yaml")
"""Mutants that behave like the original, by module, each with the reason."""
NOTICED, UNUSABLE = 1, 3
"""Exit codes of the process of a mutant; 0 if it survives."""
SECONDS_MORE: Final = 4.0
TIMES_AS_LONG: Final = 5
"""A test that takes so much longer with a mutant than without has noticed it: the mutant hangs."""


def main() -> int:
    options = _options()
    if options.one:
        return _run_one(options)
    if unknown := [*missing()]:
        sys.exit(f"PURE, MORE_TESTS and EQUIVALENT name files that do not exist: {unknown}")
    scores = [_score(name, options) for name in _chosen(options.modules)]
    return _report([score for score in scores if score["mutants"]])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "modules", nargs="*", help="parts of module paths; all pure modules if none"
    )
    parser.add_argument("--sample", type=int, default=0, help="mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="choose another sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    return parser.parse_args()


def modules() -> Iterator[str]:
    """Yield the pure modules that have a test file of their own."""
    for name in PURE:
        path = SOURCE / name
        found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
        for each in found:
            module = str(each.relative_to(SOURCE).with_suffix(""))
            if tests_of(module):
                yield module


def tests_of(module: str) -> list[Path]:
    path = UNIT / f"{module}.py"
    own = path.with_name(f"test_{path.name}")
    more = [
        ROOT / "tests" / test
        for name, tests in MORE_TESTS.items()
        if f"{module}/".startswith(f"{name}/")
        for test in tests
    ]
    return [each for each in (own, *more) if each.exists()]


def missing() -> Iterator[str]:
    """Yield the names in the tables above that do not exist."""
    for name in (*PURE, *MORE_TESTS, *equivalents()):
        if not any(path.exists() for path in (SOURCE / name, SOURCE / f"{name}.py")):
            yield f"src/kedge/{name}"
    for test in (test for tests in MORE_TESTS.values() for test in tests):
        if not (ROOT / "tests" / test).exists():
            yield f"tests/{test}"


def equivalents() -> dict[str, dict[str, dict[str, str]]]:
    """Return by module and function the changes that make no difference, with the reasons."""
    found: dict[str, dict[str, dict[str, str]]] = yaml.safe_load(EQUIVALENT.read_text())
    return found


def mutants_of(module: str) -> list[Mutant]:
    """Return the mutants of a module without equivalent ones."""
    same = equivalents().get(module, {})
    found = mutants((SOURCE / f"{module}.py").read_text())
    return [each for each in found if each.change not in same.get(each.name, {})]


def _chosen(parts: Sequence[str]) -> list[str]:
    names = [*modules()]
    for part in parts:
        if not any(part in name for name in names):
            sys.exit(f"no pure module has {part!r} in its name")
    return [name for name in names if not parts or any(part in name for part in parts)]


def _score(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run the mutants of one module in a process of its own."""
    with tempfile.NamedTemporaryFile() as into:
        command = [sys.executable, __file__, "--one", name, "--into", into.name]
        for flag in ("sample", "seed", "jobs"):
            command += [f"--{flag}", str(getattr(options, flag))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not (written := Path(into.name).read_text()):
            sys.exit(f"{name}: its tests cannot run:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    score: dict[str, Any] = json.loads(written)
    unusable = f" ({each} left out)" if (each := score["unusable"]) else ""
    print(_line(name, score["noticed"], score["mutants"]) + unusable, flush=True)
    for each in score["survivors"]:
        print(f"    src/kedge/{name}.py:{each}", flush=True)
    return score | {"name": name}


def _line(name: str, noticed: int, total: int) -> str:
    return f"{100 * noticed // total if total else 100:4} %  {noticed:4}/{total:<4} {name}"


def _report(scores: Sequence[dict[str, Any]]) -> int:
    noticed, total = (sum(each[key] for each in scores) for key in ("noticed", "mutants"))
    low = [each["name"] for each in scores if 100 * each["noticed"] < GOAL_EACH * each["mutants"]]
    print(_line(f"in all; the goal is {GOAL} %, and {GOAL_EACH} % in each", noticed, total))
    print(f"{sum(each['unusable'] for each in scores)} left out: they could not replace the code")
    for name in low:
        print(f"below {GOAL_EACH} %: {name}")
    return int(bool(low) or 100 * noticed < GOAL * total)


def _run_one(options: argparse.Namespace) -> int:
    """Collect the tests of a module, and run them on each mutant."""
    plugin = Experiment(SOURCE / f"{options.one}.py", options)
    tests = map(str, tests_of(options.one))
    unused = (f"-pno:{each}" for each in ("cacheprovider", "xdist", "rerunfailures"))
    flags = ("-q", "-s", "-otimeout=0", "--hypothesis-profile=mutants")
    return int(pytest.main([*unused, *flags, *tests], plugins=[plugin]))


Notes = dict[str, tuple[float, set[int]]]
"""By test: its seconds, and the first lines of the functions that it calls."""


class Experiment:
    """A pytest plugin that runs the collected tests once for every mutant, in a fork each."""

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        self._path = path
        self._options = options
        self._scratch = Path(tempfile.mkdtemp(prefix="kedge-mutate-"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        try:
            notes = self._rehearse(session.items)
            score = self._try_all(session.items, notes)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)
        Path(self._options.into).write_text(json.dumps(score))
        return True

    def _rehearse(self, items: list[pytest.Item]) -> Notes:
        """Run the tests on the module as it is; a failure there would notice every mutant."""
        into = self._scratch / "notes"
        child = self._fork(lambda: int(not _rehearsed(items, self._path, into)), silent=False)
        _, status = os.waitpid(child, 0)
        if status:
            pytest.exit("the tests fail without a mutant", returncode=3)
        return {name: (each[0], {*each[1]}) for name, each in json.loads(into.read_text()).items()}

    def _try_all(self, items: list[pytest.Item], notes: Notes) -> dict[str, Any]:
        found = self._sampled(mutants_of(self._options.one))
        functions = [*_functions_of(self._path)]
        for cache in _caches_of(self._path):
            cache.cache_clear()
        gc.freeze()  # Forks then share these objects for longer.

        def begin(mutant: Mutant) -> int:
            tests = _concerned(items, notes, mutant)
            limits = [SECONDS_MORE + TIMES_AS_LONG * notes[each.nodeid][0] for each in tests]
            return self._fork(lambda: _tried(mutant, functions, tests, limits), silent=True)

        codes = _exit_codes(found, begin, self._options.jobs)
        survivors = [str(each) for each, code in zip(found, codes, strict=True) if code == 0]
        unusable = codes.count(UNUSABLE)
        total = len(found) - unusable
        return {
            "mutants": total,
            "noticed": total - len(survivors),
            "survivors": survivors,
            "unusable": unusable,
        }

    def _sampled(self, found: list[Mutant]) -> list[Mutant]:
        if not 0 < self._options.sample < len(found):
            return found
        numbers = random.Random(self._options.seed).sample(range(len(found)), self._options.sample)
        return [found[number] for number in sorted(numbers)]

    def _fork(self, work: Callable[[], int], *, silent: bool) -> int:
        """Do the work in a child, which exits with the code that it returns."""
        if child := os.fork():
            return child
        code = NOTICED
        try:
            os.setsid()
            directory = tempfile.mkdtemp(dir=self._scratch)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = directory
            if silent:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
            code = work()
        finally:
            os._exit(code)


def _exit_codes(found: Sequence[Mutant], begin: Callable[[Mutant], int], jobs: int) -> list[int]:
    """Run the mutants, some at a time; return the exit code of each."""
    pending, running = [*enumerate(found)][::-1], dict[int, int]()
    codes = [0] * len(found)
    while pending or running:
        while pending and len(running) < jobs:
            number, mutant = pending.pop()
            running[begin(mutant)] = number
        child, status = os.wait()
        codes[running.pop(child)] = os.waitstatus_to_exitcode(status)
    return codes


def _tried(
    mutant: Mutant,
    functions: Sequence[FunctionType],
    tests: list[pytest.Item],
    limits: Sequence[float],
) -> int:
    if not exchange(mutant, functions):
        return UNUSABLE
    return 0 if _all_pass(tests, limits) else NOTICED


def _concerned(items: list[pytest.Item], notes: Notes, mutant: Mutant) -> list[pytest.Item]:
    """Return the tests that call the function of a mutant, the quickest first."""
    found = [item for item in items if mutant.function in notes[item.nodeid][1]]
    return sorted(found, key=lambda item: notes[item.nodeid][0])


def _rehearsed(items: list[pytest.Item], path: Path, into: Path) -> bool:
    """Run all tests; write down the seconds of each and the functions of the file it calls."""
    called: set[int] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename == str(path):
            called.add(frame.f_code.co_firstlineno)

    sys.setprofile(note)
    threading.setprofile(note)
    notes, caches = {}, [*_caches_of(path)]
    for item in items:
        called.clear()
        for cache in caches:
            cache.cache_clear()  # A test that finds a result there would make no call.
        begin = time.perf_counter()
        if not _all_pass([item]):
            return False
        notes[item.nodeid] = time.perf_counter() - begin, sorted(called)
    into.write_text(json.dumps(notes))
    return True


def _all_pass(items: list[pytest.Item], limits: Sequence[float] = ()) -> bool:
    """Run tests until one fails; the process dies if one takes longer than its limit."""
    failed: list[str] = []
    for item, following, limit in zip_longest(items, items[1:], limits):
        signal.setitimer(signal.ITIMER_REAL, limit or 0)
        with _failures_of(item.config, failed):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            return False
    return True


@contextmanager
def _failures_of(config: pytest.Config, into: list[str]) -> Iterator[None]:
    class Failures:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                into.append(report.nodeid)

    plugin = Failures()
    config.pluginmanager.register(plugin)
    yield
    config.pluginmanager.unregister(plugin)


def exchange(mutant: Mutant, functions: Sequence[FunctionType]) -> bool:
    """Give the loaded functions of a module the code of a mutant; return False if that fails."""
    file = functions[0].__code__.co_filename
    before = _by_place(compile(mutant.module, file, "exec"))
    try:
        after = _by_place(compile(mutant.tree(), file, "exec"))
    except (SyntaxError, ValueError):
        return False
    changed = {place: code for place, code in after.items() if code != before.get(place)}
    affected = [each for each in functions if _place(each.__code__) in changed]
    for each in affected:
        code = changed[_place(each.__code__)]
        if each.__code__.co_freevars != code.co_freevars:
            return False
        each.__code__ = code
    return bool(affected)


def _place(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _by_place(module: CodeType) -> dict[tuple[str, int], CodeType]:
    return {_place(each): each for each in _codes(module)}


def _functions_of(path: Path) -> Iterator[FunctionType]:
    """Yield the functions that a file has defined, wherever they are kept."""
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == str(path):
            yield each


def _caches_of(path: Path) -> "Iterator[functools._lru_cache_wrapper[Any]]":
    """Yield the caches around functions of a file."""
    for each in gc.get_objects():
        if isinstance(each, functools._lru_cache_wrapper):
            wrapped = inspect.unwrap(each)
            if isinstance(wrapped, FunctionType) and wrapped.__code__.co_filename == str(path):
                yield each


def _codes(code: CodeType) -> Iterable[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


if __name__ == "__main__":
    sys.exit(main())
