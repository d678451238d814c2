"""Generated policies with all of their parts: parameters, conditions, variables and mutations."""

from random import Random
from typing import Any, Final

from tests.differential import expressions

GROUP: Final = "differential.example.com"
HEAD: Final = {"apiVersion": "admissionregistration.k8s.io/v1"}
RULE: Final = {
    "apiGroups": [GROUP],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["policysubjects"],
}
PARAMS: Final = ({"a": "1", "b": "x"}, {"a": "20"}, {})
"""The data of the ConfigMaps that are parameters; all have the label `set: all`."""

_VARIABLES: Final = (
    "object.spec.?i.orValue(3)", "object.spec.l", "object.?spec.s.orValue('none')",
    "params.?data.a.orValue('p')", "namespaceObject.metadata.name", "request.operation",
    "authorizer.group('').resource('pods').namespace('default').check('get').allowed()",
    "authorizer.requestResource.check('create').reason()", "object.spec.ls.map(e, e + '!')",
    "request.userInfo.username", "size(object.spec.m)", "object.metadata.?labels.p.orValue('')",
)  # fmt: skip
_CONDITIONS: Final = (
    "true", "object.spec.b", "request.operation == 'CREATE'", "has(object.spec.i)",
    "params == null || params.?data.a.hasValue()", "object.spec.i / object.spec.j > 0",
    "authorizer.path('/healthz').check('get').allowed()", "request.name == 'o'",
    "oldObject == null", "object.spec.l[0] == 1", "request.?dryRun.orValue(false)",
)  # fmt: skip
_APPLIED: Final = (
    "Object{{metadata: Object.metadata{{labels: {{'made': '{word}'}}}}}}",
    "Object{{metadata: Object.metadata{{annotations: {{'v': string(dyn(variables.v0))}}}}}}",
    "Object{{spec: Object.spec{{i: {number}}}}}",
    "Object{{spec: Object.spec{{s: object.spec.s + '-{word}'}}}}",
    "Object{{spec: Object.spec{{ls: ['{word}', 'b']}}}}",
    "Object{{spec: Object.spec{{m: {{'{word}': 'new', 'a': 'over'}}}}}}",
    "Object{{spec: Object.spec{{o: Object.spec.o{{x: {number}}}}}}}",
    "Object{{spec: Object.spec{{st: ['{word}']}}}}",
    "Object{{spec: Object.spec{{zz: 1}}}}",
    "Object{{metadata: Object.metadata{{name: 'other'}}}}",
    "Object{{spec: Object.spec{{i: '{word}'}}}}",
    "has(object.spec.i) ? Object{{spec: Object.spec{{j: object.spec.i}}}} : Object{{}}",
    "Object{{spec: Object.spec{{b: !object.spec.b, d: 1.5}}}}",
    "Object{{spec: Object.spec{{?i: object.spec.?j}}}}",
)  # fmt: skip
_PATCHES: Final = (
    "[JSONPatch{{op: 'add', path: '/metadata/labels/made', value: '{word}'}}]",
    "[JSONPatch{{op: 'replace', path: '/spec/i', value: {number}}}]",
    "[JSONPatch{{op: 'remove', path: '/spec/s'}}]",
    "[JSONPatch{{op: 'test', path: '/spec/j', value: 2}}, "
    "JSONPatch{{op: 'add', path: '/spec/j', value: 7}}]",
    "[JSONPatch{{op: 'copy', from: '/spec/s', path: '/spec/q'}}]",
    "[JSONPatch{{op: 'move', from: '/spec/ls', path: '/spec/st'}}]",
    "[JSONPatch{{op: 'add', path: '/spec/l/-', value: {number}}}]",
    "[JSONPatch{{op: 'add', path: '/spec/m/' + jsonpatch.escapeKey('a/b~c'), value: '{word}'}}]",
    "[JSONPatch{{op: 'add', path: '/spec/o', value: Object.spec.o{{x: {number}}}}}]",
    "[JSONPatch{{op: 'add', path: '/spec/ls', value: object.spec.ls.map(e, e + '{word}')}}]",
    "object.spec.?i.hasValue() ? [JSONPatch{{op: 'remove', path: '/spec/i'}}] : []",
    "[JSONPatch{{op: 'add', path: '/spec/unknown', value: 1}}]",
    "[JSONPatch{{op: 'add', path: '/spec/i', value: '{word}'}}]",
    "[JSONPatch{{op: 'bad', path: '/spec/i'}}]",
)  # fmt: skip


def _spec(random: Random) -> dict[str, Any]:
    """Return what policies of both sorts have."""
    count = random.randrange(1, 3)
    chosen = random.sample(_VARIABLES, count)
    conditions = random.sample(_CONDITIONS, random.randrange(0, 3))
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [RULE]},
        "failurePolicy": random.choice(("Fail", "Ignore")),
        "variables": [{"name": f"v{i}", "expression": each} for i, each in enumerate(chosen)],
        "matchConditions": [{"name": f"c{i}", "expression": c} for i, c in enumerate(conditions)],
    }
    needs_params = any("params" in each for each in (*chosen, *conditions))
    if needs_params or random.random() < 0.3:
        spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    return spec


def _binding(number: int, spec: dict[str, Any], random: Random) -> dict[str, Any]:
    labels = {"matchLabels": {"p": str(number)}}
    bound: dict[str, Any] = {
        "policyName": f"d{number}",
        "matchResources": {"objectSelector": labels},
    }
    if "paramKind" in spec:
        chosen: dict[str, Any] = random.choice(
            (
                {"name": "param0"},
                {"name": "missing"},
                {"selector": {"matchLabels": {"set": "all"}}},
                {"selector": {"matchLabels": {"set": "none"}}},
            )
        )
        action = random.choice(("Allow", "Deny"))
        bound["paramRef"] = {"namespace": "default", "parameterNotFoundAction": action, **chosen}
    return bound


def validating(number: int, random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a ValidatingAdmissionPolicy and its binding."""
    spec = _spec(random)
    checks = [expressions.expression(random, "object.spec", 2) for _ in range(2)]
    checks.append(
        random.choice(
            ("dyn(variables.v0) == 1", "size(dyn(variables.v0)) > 1", "dyn(variables.v0) != ''")
        )
    )
    spec["validations"] = [
        {
            "expression": each,
            "messageExpression": random.choice(
                ("'m ' + object.spec.s", "string(dyn(variables.v0))", "'x'")
            ),
            "reason": random.choice(("Invalid", "Forbidden", "Unauthorized")),
        }
        for each in checks
    ]
    spec["auditAnnotations"] = [{"key": "k", "valueExpression": "object.spec.?s.orValue('none')"}]
    bound = _binding(number, spec, random)
    bound["validationActions"] = random.choice((["Deny"], ["Warn"], ["Warn", "Audit"]))
    head = HEAD | {"metadata": {"name": f"d{number}"}}
    return (
        head | {"kind": "ValidatingAdmissionPolicy", "spec": spec},
        head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )


def mutating(number: int, random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a MutatingAdmissionPolicy and its binding."""
    spec = _spec(random)
    spec["reinvocationPolicy"] = random.choice(("Never", "IfNeeded"))
    spec["mutations"] = [_mutation(random) for _ in range(random.randrange(1, 3))]
    head = HEAD | {"metadata": {"name": f"d{number}"}}
    return (
        head | {"kind": "MutatingAdmissionPolicy", "spec": spec},
        head | {"kind": "MutatingAdmissionPolicyBinding", "spec": _binding(number, spec, random)},
    )


def _mutation(random: Random) -> dict[str, Any]:
    values = {"word": random.choice(("w", "x-y", "zed")), "number": random.choice((1, 7, -3))}
    if random.random() < 0.5:
        expression = random.choice(_APPLIED).format(**values)
        return {
            "patchType": "ApplyConfiguration",
            "applyConfiguration": {"expression": expression},
        }
    expression = random.choice(_PATCHES).format(**values)
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
