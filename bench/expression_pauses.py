"""How long large objects with expressions keep the event loop: processor time of its thread.

An API server in this process, without a network. A custom resource with validation rules, a
validating and a mutating policy look at objects of several sizes and shapes, which are created,
updated, patched, applied and deleted. Each step of the event loop is measured in processor time of
its thread, so that other programs and the threads for long work do not count. The bar: no step
takes longer than 20 ms.

    bench/expression_pauses.py [--sizes BYTES ...]
"""

import argparse
import asyncio
import gc
import sys
import threading
from asyncio import events
from collections.abc import Iterator
from time import thread_time
from typing import Any

import msgspec

from kedge.machinery.turns import Turns
from kedge.testing.clock import FakeClock
from kedge.testing.local_server import APPLY, JSON, MERGE, LocalServer

BAR_SECONDS = 0.02
SIZES = (1_000, 10_000, 16_000, 100_000, 1_000_000, 1_400_000)
SHOWN = 8
PLUGINS = ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy")
POLICIES = "/apis/admissionregistration.k8s.io/v1"
BIGS = "/apis/x.example.com/v1/namespaces/default/bigs"
MAPS = "/api/v1/namespaces/default/configmaps"
Json = dict[str, Any]


class LoopClock(FakeClock):
    """A clock that is moved by the work of the event loop alone, which takes turns as in a server.
    Threads that share its processor, and other programs, do not shorten the turns."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns(self.monotonic)
        self._known = 0.0

    def monotonic(self) -> float:
        if threading.current_thread() is threading.main_thread():
            self._known = thread_time()
        return self._known

    async def give_way(self) -> None:
        await self._turns.give_way()


class Steps:
    """Measures each step of the event loop."""

    def __init__(self) -> None:
        self.doing = ""
        self.taken: dict[str, float] = {}
        """The longest step of each operation, in seconds."""
        self._run = events.Handle._run

    def install(self) -> None:
        steps, run = self, self._run

        def timed(handle: events.Handle) -> None:
            begun = thread_time()
            run(handle)
            seconds = thread_time() - begun
            steps.taken[steps.doing] = max(seconds, steps.taken.get(steps.doing, 0.0))

        events.Handle._run = timed  # type: ignore[assignment,method-assign]


def definition() -> Json:
    item = {
        "type": "object",
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.v >= 0"}],
    }
    spec = {
        "type": "object",
        "properties": {
            "l": {"type": "array", "maxItems": 100_000, "items": item},
            "m": {"type": "object", "additionalProperties": {"type": "string"}},
            "s": {"type": "string"},
        },
        "x-kubernetes-validations": [{"rule": "!has(self.s) || self.s.size() >= 0"}],
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "metadata": {"name": "bigs.x.example.com"},
        "spec": {
            "group": "x.example.com",
            "scope": "Namespaced",
            "names": {"plural": "bigs", "kind": "Big"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def policies() -> Iterator[tuple[str, Json]]:
    """Yield policies and bindings with their resources."""
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["bigs", "configmaps"]}
    every = {"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE", "DELETE"]}]}
    writes = {"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]}]}
    size = "object == null ? oldObject.metadata.name.size() : object.metadata.name.size()"
    items = "object == null || !has(object.spec) || !has(object.spec.l)"
    validations = [
        {"expression": "variables.n > 0"},
        {"expression": f"{items} || object.spec.l.all(x, x.v >= 0)"},
    ]
    yield (
        "validatingadmissionpolicies",
        {
            "matchConstraints": every,
            "variables": [{"name": "n", "expression": size}],
            "validations": validations,
        },
    )
    yield "validatingadmissionpolicybindings", {"policyName": "p", "validationActions": ["Deny"]}
    labels = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
    add = "[JSONPatch{op: 'add', path: '/metadata/labels/c', value: 'd'}]"
    mutations = [
        {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": labels}},
        {"patchType": "JSONPatch", "jsonPatch": {"expression": add}},
    ]
    yield (
        "mutatingadmissionpolicies",
        {
            "matchConstraints": writes,
            "reinvocationPolicy": "IfNeeded",
            "matchConditions": [{"name": "c", "expression": "has(object.metadata)"}],
            "mutations": mutations,
        },
    )
    yield "mutatingadmissionpolicybindings", {"policyName": "p"}


def objects(size: int) -> Iterator[tuple[str, str, Json]]:
    """Yield objects of about so many bytes: a name, the path and the object."""
    big = {"apiVersion": "x.example.com/v1", "kind": "Big"}
    numbers = [{"k": "x", "v": number % 10} for number in range(size // 17)]
    yield "list", BIGS, {**big, "spec": {"l": numbers}}
    yield "map", BIGS, {**big, "spec": {"m": {f"k{n}": "v" for n in range(size // 12)}}}
    yield "string", BIGS, {**big, "spec": {"s": "x" * size}}
    data = {f"k{n}": "v" * 20 for n in range(min(size, 900_000) // 32)}
    yield "configmap", MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "data": data}


async def write(server: LocalServer, steps: Steps, path: str, name: str, obj: Json) -> None:
    """Create, update, patch, apply and delete one object; nothing of it is refused."""
    one = f"{path}/{name}"
    body = msgspec.json.encode({**obj, "metadata": {"name": name}})
    label = msgspec.json.encode({"metadata": {"labels": {"y": "2"}}})
    for verb, method, where, sent, content in (
        ("create", "POST", path, body, JSON),
        ("update", "PUT", one, b"", JSON),
        ("patch", "PATCH", one, label, MERGE),
        ("apply", "PATCH", f"{one}?fieldManager=me&force=true", body, APPLY),
        ("get", "GET", one, None, JSON),
        ("delete", "DELETE", one, None, JSON),
    ):
        if verb == "update":
            stored = (await server.call("GET", one)).document
            stored["metadata"]["labels"]["z"] = "1"
            sent = msgspec.json.encode(stored)
        await asyncio.sleep(0)
        steps.doing = f"{verb} {name}"
        answer = await server.call(method, where, sent, content_type=content)
        steps.doing = ""
        if answer.status >= 300:
            sys.exit(f"{verb} {name}: {answer.status} {answer.message[:300]}")


async def measure(sizes: list[int], steps: Steps) -> None:
    async with LocalServer.running(clock=LoopClock(), admission=PLUGINS) as server:
        await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
        for resource, spec in policies():
            await server.post(f"{POLICIES}/{resource}", {"metadata": {"name": "p"}, "spec": spec})
        for size in (1_000, *sizes):  # the first is a warm-up
            for shape, path, obj in objects(size):
                gc.collect()
                await write(server, steps, path, f"{shape}-{size}", obj)


def main() -> None:
    flags = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of objects, in bytes")
    options = flags.parse_args()
    steps = Steps()
    steps.install()
    asyncio.run(measure(list(options.sizes), steps))
    steps.taken.pop("", None)
    longest = sorted(steps.taken.items(), key=lambda each: -each[1])
    print("longest steps of the event loop, milliseconds of its processor time (bar 20):")
    for doing, seconds in longest[:SHOWN]:
        print(f"  {seconds * 1e3:6.1f}  {doing}")
    sys.exit(longest[0][1] > BAR_SECONDS)


if __name__ == "__main__":
    main()
