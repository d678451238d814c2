"""Generated rules of definitions with all of their parts, and objects before and after a change."""

from copy import deepcopy
from random import Random
from typing import Any, Final

from tests.differential import expressions

KEYED: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": {"type": "string", "maxLength": 9}, "v": {"type": "integer"}},
}
_OF_KEYED: Final = (
    "self.v > 1", "self.v >= oldSelf.v", "self.k != 'b'", "has(self.v)", "self.k.size() < 2",
    "has(oldSelf.v) == has(self.v)", "self == oldSelf", "self.v == oldSelf.v || self.k == 'a'",
)  # fmt: skip
_OF_NUMBERS: Final = ("self > 1", "self >= oldSelf", "self == oldSelf", "10 / self > 1", "self < 5")
_OF_LISTS: Final = (
    "self == oldSelf", "self.size() >= oldSelf.size()", "self.all(e, e in oldSelf)", "self[1] > 0",
    "self.isSorted()", "oldSelf.all(e, e in self)", "self.exists(e, e == 2)", "self.sum() < 8",
)  # fmt: skip
_CHANGES: Final = (
    "self == oldSelf", "self.i == oldSelf.i", "self.j >= oldSelf.j",
    "self.s == oldSelf.s || self.b",
    "has(oldSelf.s) == has(self.s)", "self.l == oldSelf.l", "self.st == oldSelf.st",
    "oldSelf.m.all(k, k in self.m)", "self.t >= oldSelf.t", "self.d != oldSelf.d",
    "!has(oldSelf.o) || has(self.o)", "self.p == oldSelf.p", "self.u == oldSelf.u",
    "self.ls + oldSelf.ls == ['a', 'b']", "self.st + oldSelf.st == ['a', 'b']",
)  # fmt: skip
_OPTIONAL: Final = (
    "oldSelf.hasValue() || self.i > 0", "!oldSelf.hasValue() || self.j >= oldSelf.value().j",
    "oldSelf.?i.orValue(0) <= self.?i.orValue(0)", "oldSelf.optMap(o, o.j).orValue(3) == self.j",
    "oldSelf.i == self.i", "oldSelf.orValue(self).j == self.j", "!oldSelf.hasValue()",
)  # fmt: skip
_MESSAGES: Final = (
    "'i is %d'.format([self.i])", "'x'", "'  x '", "''", "'a\\nb'", "self.s", "self.zz", "1",
    "'s: ' + self.s", "string(self.i)", "self.s.upperAscii() + self.q", "self.b ? 'yes' : 'no'",
    "'%s'.format([self.l])", "self.m['a']", "string(self.t)", "'%s %s'.format([self.o, self.ls])",
)  # fmt: skip
_PATHS: Final = (
    ".i", ".o.x", ".m['a']", ".zz", "i", ".o['y-z']", ".m.a", ".l[0]", ".l", ".o", ".", ".m['k.1']",
)  # fmt: skip
_REASONS: Final = (
    "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate",
    "Other",
)  # fmt: skip
NODES: Final = ("whole", "keyed", "numbers", "map", "set", "atomic")


def sample(random: Random) -> tuple[str, dict[str, Any]]:
    """Return a sort of node, and a rule at it."""
    node = random.choices(NODES, (12, 2, 1, 1, 1, 1))[0]
    match node:
        case "whole":
            return node, _decorated(_whole(random), random)
        case "keyed":
            return node, {"rule": random.choice(_OF_KEYED)}
        case "numbers" | "map":
            return node, {"rule": random.choice(_OF_NUMBERS), "message": f"of {node}"}
        case _:
            return node, {"rule": random.choice(_OF_LISTS)}


def _whole(random: Random) -> dict[str, Any]:
    chance = random.random()
    if chance < 0.45:
        return {"rule": expressions.expression(random, "self", 2)}
    if chance < 0.6:
        return {"rule": random.choice(_OPTIONAL), "optionalOldSelf": True}
    if chance < 0.8:
        return {"rule": random.choice(_CHANGES)}
    left, right = (expressions.expression(random, root, 1) for root in ("self", "oldSelf"))
    return {"rule": f"({left}) {random.choice(('&&', '||'))} ({right})"}


def _decorated(rule: dict[str, Any], random: Random) -> dict[str, Any]:
    if random.random() < 0.3:
        rule["message"] = random.choice(("told", "  in blanks ", "two\nlines", "'q' \"d\""))
    if random.random() < 0.4:
        rule["messageExpression"] = random.choice(_MESSAGES)
    if random.random() < 0.3:
        rule["reason"] = random.choices(_REASONS, (4, 4, 4, 4, 1))[0]
    if random.random() < 0.3:
        rule["fieldPath"] = random.choice(_PATHS)
    return rule


def _schema(node: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a node with rules, or without if there are none."""
    extra: dict[str, Any] = {"x-kubernetes-validations": rules} if rules else {}
    integer = {"type": "integer"}
    match node:
        case "whole":
            return {**expressions.SCHEMA, **extra}
        case "keyed":
            listed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
            return {"type": "array", "maxItems": 5, **listed, "items": {**KEYED, **extra}}
        case "numbers":
            return {**integer, **extra}
        case "map":
            inner = {**integer, **extra}
            return {"type": "object", "maxProperties": 5, "additionalProperties": inner}
        case _:
            listed = {"x-kubernetes-list-type": node}
            return {"type": "array", "maxItems": 5, **listed, "items": integer, **extra}


def value(node: str, random: Random) -> Any:
    """Return a value for a node."""
    match node:
        case "whole":
            return expressions.value(random)
        case "keyed":
            keys = random.sample(("a", "b", "cc"), random.randrange(1, 4))
            return [
                {"k": key} | ({"v": random.randrange(4)} if random.random() < 0.8 else {})
                for key in keys
            ]
        case "numbers":
            return random.choice((0, 1, 2, 5, 20))
        case "map":
            return {key: random.randrange(4) for key in ("a", "b", "k.1") if random.random() < 0.7}
        case _:
            return random.sample((1, 2, 3, 5), random.randrange(1, 4))


def changed(node: str, old: Any, random: Random) -> Any:
    """Return the value again, or with a part of it changed, or another one."""
    chance = random.random()
    if chance < 0.3:
        return old
    new = value(node, random)
    if chance < 0.7 and isinstance(old, dict) and isinstance(new, dict):
        kept = deepcopy(old)
        for key in random.sample(sorted(new), min(2, len(new))):
            kept[key] = new[key]
        return kept
    return new


def definition(number: int, samples: list[tuple[str, dict[str, Any]]], *, ruled: bool) -> Any:
    """Return a definition whose spec has one field per sample, with its rule or without."""
    made = expressions.definition(number, [])
    nodes = {
        f"r{i}": _schema(node, [rule] if ruled else []) for i, (node, rule) in enumerate(samples)
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": nodes}}}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema
    return made
