"""LimitRanges and pods of every shape, close enough to each other's bounds to be interesting.

Hypothesis combines them; their smallest parts come from pools made beforehand, which is what makes
thousands of cases take seconds.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import strategies as st
from tests.unit.apiserver.admission.limit_ranger import documents
from tests.unit.apiserver.admission.limit_ranger.reference import amount

Draw = st.DrawFn
Short = dict[str, Any]

POOL = 400
SPELLINGS = {
    "cpu": ["0", "1m", "100m", "0.1", "250m", ".5", "1", "1.5", "2", "2500e-3", "3"],
    "memory": [
        "0",
        "1Mi",
        "1M",
        "1.5Mi",
        "1024Ki",
        "2Mi",
        "3e6",
        "4Mi",
        "2097152",
        "4194304",
        "1G",
        "1Gi",
    ],
    "ephemeral-storage": ["1Ki", "1Mi", "2Mi", "1Gi", "1.1Gi", "1e9", "9Ei", "12E", "20E"],
    "hugepages-2Mi": ["0", "2Mi", "4Mi", "4096Ki", "8Mi"],
    "example.com/dev": ["0", "1", "2", "3", "1k"],
}
"""Amounts of each resource, some of them in several spellings."""
BOUNDARIES = SPELLINGS | {"cpu": ["0.0005", "0.2501", *SPELLINGS["cpu"]]}
"""Of LimitRanges there are finer ones too. Upstream adds up fine amounts of pods unrounded."""
RATIOS = ["1", "1.5", "2", "10", "1e1", "16.1"]
SOME_BOUNDS = [("min",), ("max",), ("min", "max"), ()]
BOUNDS = {
    "Pod": SOME_BOUNDS,
    "example.com/Foo": SOME_BOUNDS,
    "Container": [
        *SOME_BOUNDS,
        ("default",),
        ("defaultRequest",),
        ("defaultRequest", "default"),
        ("min", "default"),
        ("min", "defaultRequest", "max"),
        ("min", "defaultRequest", "default", "max"),
    ],
}


def overcommits(name: str) -> bool:
    return "/" not in name and not name.startswith("hugepages-")


def some_names(random: Random, names: list[str]) -> list[str]:
    return random.sample(names, min(random.choice([0, 1, 1, 2, 3]), len(names)))


def in_order(spelled: list[str]) -> list[str]:
    return sorted(spelled, key=lambda text: amount(text).exact)


def ascending(random: Random, name: str, count: int, of: Mapping[str, list[str]]) -> list[str]:
    return in_order([random.choice(of[name]) for _ in range(count)])


def item(random: Random, type_: str) -> Short:
    """A valid item: minimum, default request, default limit and maximum ascend."""
    made: Short = {"type": type_}
    for name in some_names(random, list(SPELLINGS)):
        bounds = random.choice(BOUNDS[type_])
        for bound, text in zip(
            bounds, ascending(random, name, len(bounds), BOUNDARIES), strict=True
        ):
            made.setdefault(bound, {})[name] = text
        if not overcommits(name):
            same_defaults(made, name)
        ratio = random.choice(RATIOS)
        if random.random() < 0.4 and reachable(made, name, ratio):
            made.setdefault("maxLimitRequestRatio", {})[name] = ratio
    return made


def same_defaults(made: Mapping[str, Any], name: str) -> None:
    """What cannot be overcommitted has one default for both; the maximum is it where none is."""
    limit = made.get("default", {}).get(name) or made.get("max", {}).get(name)
    if limit is not None and name in made.get("defaultRequest", {}):
        made["defaultRequest"][name] = limit


def reachable(made: Mapping[str, Any], name: str, ratio: str) -> bool:
    """Whether a range this wide allows the ratio."""
    least, greatest = made.get("min", {}).get(name), made.get("max", {}).get(name)
    if least is None or greatest is None:
        return True
    return amount(ratio).exact * amount(least).exact <= amount(greatest).exact


KINDS = [("limits",), ("requests", "limits"), ("requests",)]


def resources(random: Random, names: list[str]) -> Short:
    made: Short = {}
    for name in some_names(random, names):
        kinds = random.choice(KINDS if overcommits(name) else KINDS[:2])
        spelled = ascending(random, name, len(kinds), SPELLINGS)
        for kind, text in zip(kinds, spelled, strict=True):
            made.setdefault(kind, {})[name] = text if overcommits(name) else spelled[0]
    return made


def pool(make: Callable[[Random], Short]) -> st.SearchStrategy[Short]:
    """One of many, the simplest first."""
    random = Random(36)
    return st.sampled_from(sorted((make(random) for _ in range(POOL)), key=lambda m: len(str(m))))


ITEMS = {type_: pool(lambda random, t=type_: item(random, t)) for type_ in BOUNDS}  # type: ignore[misc]
CONTAINERS = pool(lambda random: resources(random, list(SPELLINGS)))
SIDECARS = CONTAINERS.map(lambda short: short | {"restartPolicy": "Always"})
OWN = pool(lambda random: resources(random, ["cpu", "memory"]))
NAMES = st.lists(st.sampled_from(["b", "a", "a-b", "c"]), min_size=1, max_size=3, unique=True)
TYPES = st.sampled_from(
    [["Container"], ["Pod"], ["Pod", "Container"], ["Container", "Pod"], ["example.com/Foo"], []]
)


@st.composite
def limit_ranges(draw: Draw) -> dict[str, list[Short]]:
    """One to three LimitRanges, items by name, in any order."""
    return {name: [draw(ITEMS[type_]) for type_ in draw(TYPES)] for name in draw(NAMES)}


@st.composite
def pods(draw: Draw) -> documents.Document:
    containers = draw(st.lists(CONTAINERS, min_size=1, max_size=3))
    init = draw(st.lists(CONTAINERS | SIDECARS, max_size=2))
    short: Short = {
        "containers": dict(zip("abc", containers, strict=False)),
        "init": dict(zip("xyz", init, strict=False)),
    }
    if draw(st.integers(0, 3)) == 3:
        short["resources"] = draw(OWN)
    return documents.pod(short)


# Kedge's extension: items for some pods or containers only.

SELECTORS: list[Short] = [
    {"containerName": "a"},
    {"containerName": "x"},
    {"name": "p"},
    {"name": "q"},
    {"matchLabels": {"tier": "db"}},
    {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["db", "web"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]},
    {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}], "containerName": "b"},
    {"fieldSelector": "metadata.name=p"},
    {"fieldSelector": "metadata.name!=p", "matchLabels": {"tier": "db"}},
    {"uid": "5e1ec7ed-0000-4000-8000-000000000000"},
]


@st.composite
def selective_limit_ranges(draw: Draw) -> dict[str, list[Short]]:
    """One or two LimitRanges whose items are for everybody or for some."""
    names = draw(st.lists(st.sampled_from(["b", "a"]), min_size=1, max_size=2, unique=True))
    return {name: draw(selective_items()) for name in names}


@st.composite
def selective_items(draw: Draw) -> list[Short]:
    made = []
    for type_ in draw(TYPES):
        selectors = [
            each for each in SELECTORS if type_ == "Container" or "containerName" not in each
        ]
        chosen = draw(st.lists(st.sampled_from([{}, *selectors]), max_size=3, unique_by=str))
        made += [draw(ITEMS[type_]) | ({"selector": each} if each else {}) for each in chosen]
    return made


@st.composite
def labelled_pods(draw: Draw) -> documents.Document:
    made = draw(pods())
    made["metadata"] = {"name": draw(st.sampled_from(["p", "q"]))}
    if tier := draw(st.sampled_from(["", "db", "web", "cache"])):
        made["metadata"]["labels"] = {"tier": tier}
    return made
