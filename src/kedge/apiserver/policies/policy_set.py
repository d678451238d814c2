"""Policies of one sort with their bindings, compiled when they change."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kedge.api.builtin.policy_programs import PolicyCompiler
from kedge.apiserver.policies.match_resources import MatchResources, match_resources
from kedge.apiserver.watchcache import Change, Item, ResourceCache
from kedge.apiserver.webhooks.conditions import Conditions
from kedge.machinery.cel import CelError, CelProgram
from kedge.machinery.clock import Clock
from kedge.machinery.patience import PatienceError, on_event_loop

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """A binding: it puts a policy into effect for some requests."""

    name: str
    actions: tuple[str, ...]
    param_reference: Mapping[str, Any] | None
    constraints: MatchResources


@dataclass(frozen=True, slots=True)
class BoundPolicy(Generic[Part]):
    """A policy with its bindings; `parts` is what is particular to its sort."""

    name: str
    constraints: MatchResources
    conditions: Conditions | None
    ignores_failure: bool
    is_reinvoked: bool
    param_kind: Mapping[str, Any] | None
    variables: Mapping[str, CelProgram]
    parts: Part
    bindings: tuple[PolicyBinding, ...]


PartsOf = Callable[[Mapping[str, Any], PolicyCompiler], Part]


class PolicySet(Generic[Part]):
    """The policies that have a binding, in the order of their names."""

    def __init__(
        self, policies: ResourceCache, bindings: ResourceCache, parts_of: PartsOf[Part]
    ) -> None:
        self._policies = policies
        self._bindings = bindings
        self._parts_of = parts_of
        self._bound: tuple[BoundPolicy[Part], ...] | None = None
        self._compiled: dict[str, tuple[int, BoundPolicy[Part]]] = {}
        """By name: the revision of a policy that is compiled, and the result."""
        self._changes = 0
        self._reading = asyncio.Lock()
        policies.listeners.add(self._follow)
        bindings.listeners.add(self._follow)

    def _follow(self, change: Change | None) -> None:
        self._bound = None
        self._changes += 1

    async def bound(self, clock: Clock) -> tuple[BoundPolicy[Part], ...]:
        """Return the policies as they are now; a change meanwhile is for later requests."""
        if self._bound is not None:
            return self._bound
        async with self._reading:
            if self._bound is not None:
                return self._bound
            changes = self._changes
            found = tuple(await self._read(clock))
            if changes == self._changes:
                self._bound = found
            return found

    async def _read(self, clock: Clock) -> list[BoundPolicy[Part]]:
        bindings: dict[str, list[PolicyBinding]] = {}
        for item in [*self._bindings.values()]:
            await clock.give_way()
            written = item.document()
            policy = (written.get("spec") or {}).get("policyName") or ""
            bindings.setdefault(policy, []).append(_binding(written))
        compiled: dict[str, tuple[int, BoundPolicy[Part]]] = {}
        found: list[BoundPolicy[Part]] = []
        for item in [*self._policies.values()]:
            await clock.give_way()
            name = item.key.rpartition("/")[2]
            if name in bindings:
                known = self._compiled.get(name)
                if known is None or known[0] != item.revision:
                    known = item.revision, await self._compile_soon(item)
                compiled[name] = known
                found.append(_with_bindings(known[1], bindings[name]))
        self._compiled = compiled
        return sorted(found, key=lambda policy: policy.name)

    async def _compile_soon(self, item: Item) -> BoundPolicy[Part]:
        """Compile a policy, in a thread if it is long."""
        try:
            with on_event_loop():
                return self._compile(item.document())
        except PatienceError:
            return await asyncio.to_thread(lambda: self._compile(item.document()))

    def _compile(self, written: Mapping[str, Any]) -> BoundPolicy[Part]:
        spec = written.get("spec") or {}
        compiler = PolicyCompiler(spec)
        variables: dict[str, CelProgram] = {}
        for each in spec.get("variables") or ():
            try:
                variables[each["name"]] = compiler.variable(each["name"], each["expression"])
            except CelError:
                continue  # Expressions that use the variable do not compile either, and say so.
        conditions = [each.get("expression", "") for each in spec.get("matchConditions") or ()]
        has_params = bool(spec.get("paramKind"))
        return BoundPolicy(
            name=written["metadata"]["name"],
            constraints=match_resources(spec.get("matchConstraints")),
            conditions=Conditions(conditions, params=has_params) if conditions else None,
            ignores_failure=spec.get("failurePolicy") == "Ignore",
            is_reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
            param_kind=spec.get("paramKind"),
            variables=variables,
            parts=self._parts_of(spec, compiler),
            bindings=(),
        )


def _with_bindings(policy: BoundPolicy[Part], bindings: list[PolicyBinding]) -> BoundPolicy[Part]:
    ordered = tuple(sorted(bindings, key=lambda binding: binding.name))
    return BoundPolicy(
        name=policy.name,
        constraints=policy.constraints,
        conditions=policy.conditions,
        ignores_failure=policy.ignores_failure,
        is_reinvoked=policy.is_reinvoked,
        param_kind=policy.param_kind,
        variables=policy.variables,
        parts=policy.parts,
        bindings=ordered,
    )


def _binding(written: Mapping[str, Any]) -> PolicyBinding:
    spec = written.get("spec") or {}
    return PolicyBinding(
        name=written["metadata"]["name"],
        actions=tuple(spec.get("validationActions") or ()),
        param_reference=spec.get("paramRef"),
        constraints=match_resources(spec.get("matchResources")),
    )
