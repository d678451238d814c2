"""Policies of one sort with their bindings, compiled when they change."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from kedge.api.builtin.policy_programs import PolicyCompiler
from kedge.apiserver.policies.match_resources import MatchResources, match_resources
from kedge.apiserver.watchcache import Change, Item, ResourceCache
from kedge.apiserver.webhooks.conditions import Conditions
from kedge.machinery.cel import CelError, CelProgram
from kedge.machinery.clock import Clock
from kedge.machinery.patience import PatienceError, on_event_loop

log = logging.getLogger(__name__)

Part = TypeVar("Part")
_EVERYTHING: Final = match_resources(None)


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """A binding: it puts a policy into effect for some requests."""

    name: str
    actions: tuple[str, ...]
    param_reference: Mapping[str, Any] | None
    constraints: MatchResources
    fault: str = ""
    """Why the binding cannot be used; empty if it can."""


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
    fault: str = ""
    """Why the policy cannot be used; empty if it can."""


PartsOf = Callable[[Mapping[str, Any], PolicyCompiler], Part]


class PolicySet(Generic[Part]):
    """The policies that have a binding, in the order of their names, and so are their bindings.

    Upstream has no order: it reads both from maps, each time they change, so warnings and the
    policy that refuses first differ from one server to the next. Any fixed order fits.
    """

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
            if (spec := _spec(item)) is not None:
                policy = str(spec.get("policyName") or "")
                bindings.setdefault(policy, []).append(_binding(_name(item), spec))
        compiled: dict[str, tuple[int, BoundPolicy[Part]]] = {}
        found: list[BoundPolicy[Part]] = []
        for item in [*self._policies.values()]:
            await clock.give_way()
            name = _name(item)
            if name not in bindings:
                continue
            known = self._compiled.get(name)
            if known is None or known[0] != item.revision:
                if (spec := _spec(item)) is None:
                    continue
                known = item.revision, await self._compile_soon(name, spec)
            compiled[name] = known
            found.append(_with_bindings(known[1], bindings[name]))
        self._compiled = compiled
        return sorted(found, key=lambda policy: policy.name)

    async def _compile_soon(self, name: str, spec: Mapping[str, Any]) -> BoundPolicy[Part]:
        """Compile a policy, in a thread if it is long."""
        try:
            with on_event_loop():
                return self._compiled_or_faulty(name, spec)
        except PatienceError:
            return await asyncio.to_thread(self._compiled_or_faulty, name, spec)

    def _compiled_or_faulty(self, name: str, spec: Mapping[str, Any]) -> BoundPolicy[Part]:
        """Return a policy. One that a release with other rules has stored may be unreadable; it
        fails as its failurePolicy says, for the requests that it is about."""
        try:
            return self._compile(name, spec)
        except PatienceError:
            raise
        except Exception as error:
            log.warning("admission policy not usable name=%s error=%r", name, error)
            return self._faulty(name, spec, _why(error))

    def _faulty(self, name: str, spec: Mapping[str, Any], why: str) -> BoundPolicy[Part]:
        try:
            constraints = match_resources(spec.get("matchConstraints"))
        except Exception:  # which requests it is about is unknown
            constraints = _EVERYTHING
        return BoundPolicy(
            name=name,
            constraints=constraints,
            conditions=None,
            ignores_failure=spec.get("failurePolicy") == "Ignore",
            is_reinvoked=False,
            param_kind=None,
            variables={},
            parts=self._parts_of({}, PolicyCompiler({})),
            bindings=(),
            fault=why,
        )

    def _compile(self, name: str, spec: Mapping[str, Any]) -> BoundPolicy[Part]:
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
            name=name,
            constraints=match_resources(spec.get("matchConstraints")),
            conditions=Conditions(conditions, params=has_params) if conditions else None,
            ignores_failure=spec.get("failurePolicy") == "Ignore",
            is_reinvoked=spec.get("reinvocationPolicy") == "IfNeeded",
            param_kind=spec.get("paramKind"),
            variables=variables,
            parts=self._parts_of(spec, compiler),
            bindings=(),
        )


def _name(item: Item) -> str:
    return item.key.rpartition("/")[2]


def _spec(item: Item) -> Mapping[str, Any] | None:
    """Return the spec of a policy or binding; None, with a line in the log, if there is none."""
    try:
        spec = item.document()["spec"]
    except Exception as error:
        log.warning("admission policy or binding not readable key=%s error=%r", item.key, error)
        return None
    if isinstance(spec, dict):
        return spec
    log.warning("admission policy or binding without a spec key=%s", item.key)
    return None


def _why(error: Exception) -> str:
    return f"stored object is not readable: {type(error).__name__}: {error}"


def _with_bindings(policy: BoundPolicy[Part], bindings: list[PolicyBinding]) -> BoundPolicy[Part]:
    ordered = tuple(sorted(bindings, key=lambda binding: binding.name))
    return replace(policy, bindings=ordered)


def _binding(name: str, spec: Mapping[str, Any]) -> PolicyBinding:
    try:
        return PolicyBinding(
            name=name,
            actions=tuple(spec.get("validationActions") or ()),
            param_reference=spec.get("paramRef"),
            constraints=match_resources(spec.get("matchResources")),
        )
    except Exception as error:
        log.warning("admission policy binding not usable name=%s error=%r", name, error)
        return PolicyBinding(name, (), None, _EVERYTHING, _why(error))
