"""How many expressions one core evaluates, with their cost counted, and how many it compiles.

The bars are 150,000 evaluations a second of `self.replicas <= self.maxReplicas` and 3,000 of a
predicate over 100 items. Times are those of the processor, so that other work does not count.

    bench/cel.py [--seconds S]
"""

import argparse
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

from kedge.machinery.cel import CelProgram, uses
from kedge.machinery.cel.schema_types import declared_type

SCHEMA = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "maxReplicas": {"type": "integer"},
        "memory": {"type": "string"},
        "list": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    },
}
VALUE: dict[str, Any] = {
    "replicas": 1,
    "maxReplicas": 2,
    "memory": "512Mi",
    "list": [{"name": f"a{i}"} for i in range(100)],
}
RULES = {
    "self.replicas <= self.maxReplicas": 150_000,
    "self.list.all(x, x.name.startsWith('a'))": 3_000,
    "quantity(self.memory).isLessThan(quantity('1Gi'))": 0,
}


def rate(call: Callable[[], object], seconds: float) -> float:
    """Calls per second of processor time."""
    begin, count = process_time(), 0
    while (spent := process_time() - begin) < seconds:
        for _ in range(100):
            call()
        count += 100
    return count / spent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    seconds = parser.parse_args().seconds
    declared = declared_type(SCHEMA)
    assert declared is not None
    environment = uses.crd_rule(declared.type)
    missed = 0
    for rule, bar in RULES.items():
        program = CelProgram(rule, environment)
        values = {"self": VALUE}
        evaluated = rate(lambda p=program, v=values: p.run(v), seconds)  # type: ignore[misc]
        compiled = rate(lambda r=rule: CelProgram(r, environment), seconds)  # type: ignore[misc]
        missed += evaluated < bar
        shown = f"bar {bar:,}" if bar else "no bar"
        print(
            f"{rule}: {evaluated:,.0f} evaluations/s ({shown}), {1e6 / compiled:.0f} µs to compile"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
