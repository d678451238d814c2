"""Generated policies with all of their parts: parameters, conditions, variables and mutations."""

from random import Random
from typing import Any, Final

from tests.differential import expressions

GROUP: Final = "differential.example.com"
HEAD: Final = {"apiVersion": "admissionregistration.k8s.io/v1"}
PARAMS: Final = ({"a": "1", "b": "x"}, {"a": "20"}, {})
"""The data of the ConfigMaps that are parameters; all have the label `set: all`."""

_VARIABLES: Final = (
    "object.spec.?i.orValue(3)", "object.spec.l", "object.?spec.s.orValue('none')",
    "params.?data.a.orValue('p')", "namespaceObject.metadata.name", "request.operation",
    "authorizer.group('').resource('pods').namespace('default').check('get').allowed()",
    "authorizer.requestResource.check('create').reason()", "object.spec.ls.map(e, e + '!')",
    "request.userInfo.username", "size(object.spec.m)", "object.metadata.?labels.p.orValue('')",
    "has(oldObject.spec) ? oldObject.spec.?j.orValue(0) : -1", "oldObject == null ? 1 : 2",
    "params == null ? 'none' : params.metadata.name", "request.?subResource.orValue('-')",
    "namespaceObject.metadata.?labels.team.orValue('nobody')", "object.spec.i * 1000",
    "request.userInfo.groups.filter(g, g.startsWith('system:')).size()", "request.kind.version",
    "authorizer.serviceAccount('default', 'default').group('apps').resource('deployments')"
    ".check('list').allowed()", "request.namespace + '/' + request.name", "object.spec.o",
)  # fmt: skip
_CONDITIONS: Final = (
    "true", "object.spec.b", "request.operation == 'CREATE'", "has(object.spec.i)",
    "params == null || params.?data.a.hasValue()", "object.spec.i / object.spec.j > 0",
    "authorizer.path('/healthz').check('get').allowed()", "request.name.startsWith('o')",
    "oldObject == null", "object.spec.l[0] == 1", "request.?dryRun.orValue(false)",
    "object != null", "request.operation in ['CREATE', 'UPDATE']", "has(object.spec.o.x)",
    "namespaceObject.metadata.name == 'default'", "!('system:nodes' in request.userInfo.groups)",
    "request.resource.resource == 'policysubjects'", "object.spec.s.size() < 20",
    "variables.v0 == 1",
)  # fmt: skip
_CHECKS: Final = (
    "dyn(variables.v0) == 1", "size(dyn(variables.v0)) > 1", "dyn(variables.v0) != ''",
    "namespaceObject.metadata.labels.team == 'red'", "request.operation != 'DELETE'",
    "oldObject == null || object == null"
    " || object.spec.?j.orValue(3) >= oldObject.spec.?j.orValue(3)",
    "params.data.a == '1'", "params != null", "object.spec.?i.orValue(0) < int(params.data.a)",
    "authorizer.requestResource.check('delete').allowed()", "request.userInfo.username == 'admin'",
    "authorizer.group('apps').resource('deployments').namespace('default').check('create').allowed()",
    "object.metadata.labels.p != '7'", "!has(object.metadata.annotations)", "false",
    "request.resource.version == 'v1'", "request.requestKind.version == 'v2'",
    "object.apiVersion == 'differential.example.com/v1'", "dyn(variables.v0).x == 1",
    "request.options.?dryRun.orValue([]) == ['All']", "object.kind == 'PolicySubject'",
    "namespaceObject.status.phase == 'Active'", "object.metadata.namespace == request.namespace",
    "has(namespaceObject.metadata.annotations)", "object == oldObject",
    "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=a').check('list').allowed()",
    "authorizer.group('').resource('secrets').labelSelector('a=b').check('list').errored()",
    "authorizer.group('').resource('nodes').subresource('proxy').name('n').check('get').allowed()",
    "[1, 2, 3].all(n, object.spec.?i.orValue(0) != n)", "params.metadata.name.startsWith('param')",
    "params.?spec.limit.orValue(5) > object.spec.?i.orValue(0)", "object.spec.paused",
)  # fmt: skip
_MESSAGES: Final = (
    "'m ' + object.spec.s", "string(dyn(variables.v0))", "'x'", "'  blanks  '", "'two\\nlines'",
    "''", "'%s by %s'.format([request.operation, request.userInfo.username])",
    "object.spec.zz + ''",
    "'p=' + params.data.a", "namespaceObject.metadata.name", "'%s'.format([dyn(variables.v0)])",
    "'long '.replace('o', '" + "o" * 300 + "')", "request.name", "1",
    "string(1 / size(object.spec.l))",
)  # fmt: skip
_ANNOTATIONS: Final = (
    "object.spec.?s.orValue('none')", "request.operation", "null", "''", "'b ' + params.data.b",
    "object.spec.b ? 'yes' : null", "string(object.spec.i)", "object.spec.zz + 'x'", "1",
    "'%d items'.format([size(object.spec.ls)])", "string(dyn(variables.v0))",
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
    "Object{{metadata: Object.metadata{{labels: "
    "{{'team': namespaceObject.metadata.labels.team}}}}}}",
    "Object{{metadata: Object.metadata{{finalizers: ['example.com/{word}']}}}}",
    "Object{{spec: Object.spec{{s: params.data.a}}}}",
    "Object{{spec: Object.spec{{o: Object.spec.m{{x: 1}}}}}}",
    "Object{{spec: Object.spec{{t: timestamp('2024-02-29T12:30:45Z')}}}}",
    "Object{{spec: Object.spec{{u: duration('90s')}}}}",
    "Object{{spec: Object.spec{{ml: [Object.spec.ml{{k: '{word}', v: {number}}}]}}}}",
    "Object{{spec: Object.spec{{ml: [Object.spec.ml{{v: {number}}}]}}}}",
    "Object{{spec: Object.spec{{m: {{}}, l: []}}}}",
    "Object{{spec: Object.spec{{p: {number}}}}}",
    "Object{{spec: Object.spec{{j: oldObject == null ? 1 : oldObject.spec.j}}}}",
    "Object{{kind: 'Other'}}",
    "Object{{metadata: Object.metadata{{ownerReferences: []}}}}",
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
    "[JSONPatch{{op: 'add', path: '/spec/l/0', value: {number}}}]",
    "[JSONPatch{{op: 'remove', path: '/spec/l/1'}}]",
    "[JSONPatch{{op: 'replace', path: '/spec/ls/0', value: '{word}'}}]",
    "[JSONPatch{{op: 'add', path: 'spec/i', value: 1}}]",
    "[JSONPatch{{op: 'replace', path: '/metadata/name', value: 'other'}}]",
    "[JSONPatch{{op: 'add', path: '/metadata/annotations', value: {{'a': '{word}'}}}}]",
    "[JSONPatch{{op: 'add', path: '/metadata/annotations/a', value: '{word}'}}]",
    "[JSONPatch{{op: 'test', path: '/spec/s', value: 'abc'}}]",
    "[JSONPatch{{op: 'move', from: '/spec/i', path: '/spec/j'}}]",
    "[JSONPatch{{op: 'copy', from: '/spec/l/0', path: '/spec/i'}}]",
    "[JSONPatch{{op: 'add', path: '/spec/d', value: 1.0}}, "
    "JSONPatch{{op: 'add', path: '/spec/b', value: true}}]",
    "[JSONPatch{{op: 'add', path: '/spec/s', value: params.data.a}}]",
    "[JSONPatch{{op: 'add', path: '/spec/ml', value: [Object.spec.ml{{k: '{word}'}}]}}]",
    "[JSONPatch{{op: 'add', path: '/spec/i', value: dyn(variables.v0)}}]",
    "[JSONPatch{{op: 'add', path: '/spec/t', value: timestamp('2024-02-29T12:30:45Z')}}]",
    "[JSONPatch{{op: 'remove', path: '/spec/p'}}, "
    "JSONPatch{{op: 'add', path: '/spec/p', value: '{word}'}}]",
    "[JSONPatch{{op: 'replace', path: '/spec', value: {{'j': {number}}}}}]",
)  # fmt: skip


def _rule(random: Random) -> dict[str, Any]:
    """Return a rule, which most of the time is about the requests that follow."""
    operations: list[str] = random.choice(
        (["CREATE"], ["*"], ["CREATE", "UPDATE"], ["UPDATE"], ["CREATE", "UPDATE"])
    )
    rule: dict[str, Any] = {
        "apiGroups": random.choice(([GROUP], [GROUP], ["*"], [GROUP, "apps"])),
        "apiVersions": random.choice((["v1"], ["v1"], ["*"], ["v2"], ["v1", "v2"])),
        "operations": operations,
        "resources": random.choice(
            (["policysubjects"], ["policysubjects"], ["*"], ["policysubjects/status", "*/*"])
        ),
    }
    if random.random() < 0.15:
        rule["scope"] = random.choice(("Namespaced", "Cluster", "*"))
    if random.random() < 0.1:
        rule["resourceNames"] = random.choice((["o"], ["old"], ["x", "o"]))
    return rule


def _constraints(random: Random) -> dict[str, Any]:
    found: dict[str, Any] = {"resourceRules": [_rule(random)]}
    if random.random() < 0.15:
        found["excludeResourceRules"] = [_rule(random) | {"resourceNames": ["o"]}]
    if random.random() < 0.2:
        found["matchPolicy"] = random.choice(("Exact", "Equivalent"))
    if random.random() < 0.15:
        found["namespaceSelector"] = random.choice(
            (
                {"matchLabels": {"team": "red"}},
                {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]},
            )
        )
    return found


def _spec(random: Random, *, mutates: bool) -> dict[str, Any]:
    """Return what policies of both sorts have."""
    count = random.randrange(1, 3)
    chosen = random.sample(_VARIABLES, count)
    conditions = random.sample(_CONDITIONS, random.choice((0, 0, 1, 2)))
    constraints = _constraints(random)
    if not mutates and random.random() < 0.4:
        constraints["resourceRules"][0]["operations"] = ["CREATE", "UPDATE", "DELETE"]
    if mutates and constraints["resourceRules"][0]["operations"] == ["*"]:
        constraints["resourceRules"][0]["operations"] = ["CREATE", "UPDATE"]
    spec: dict[str, Any] = {
        "matchConstraints": constraints,
        "variables": [{"name": f"v{i}", "expression": each} for i, each in enumerate(chosen)],
        "matchConditions": [{"name": f"c{i}", "expression": c} for i, c in enumerate(conditions)],
    }
    if random.random() < 0.8:
        spec["failurePolicy"] = random.choice(("Fail", "Ignore"))
    return spec


def _param_kind(number: int, spec: dict[str, Any], random: Random) -> None:
    """Give a policy a kind of parameters, if its expressions need one and sometimes if not."""
    if "params" not in str(spec) and random.random() < 0.8:
        return
    kinds = (
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": f"{GROUP}/v1", "kind": "PolicyParam"},
        {"apiVersion": "v1", "kind": "Namespace"},
        {"apiVersion": "nope.example.com/v1", "kind": "Nope"},
    )
    spec["paramKind"] = random.choice(kinds)
    if spec["paramKind"]["kind"] == "Nope":
        # Such a policy refuses whatever it matches, and not only what its binding selects.
        spec["matchConstraints"]["objectSelector"] = _selector(number)


def _selector(number: int) -> dict[str, Any]:
    return {"matchLabels": {"p": str(number)}}


def _binding(number: int, spec: dict[str, Any], random: Random) -> dict[str, Any]:
    resources: dict[str, Any] = {"objectSelector": _selector(number)}
    if random.random() < 0.15:
        resources |= _constraints(random)
    bound: dict[str, Any] = {"policyName": f"d{number}", "matchResources": resources}
    if "paramKind" in spec and random.random() < 0.9:
        chosen: dict[str, Any] = random.choice(
            (
                {"name": "param0"},
                {"name": "param1"},
                {"name": "default"},
                {"name": "missing"},
                {"selector": {"matchLabels": {"set": "all"}}},
                {"selector": {"matchLabels": {"set": "one"}}},
                {"selector": {"matchLabels": {"set": "none"}}},
            )
        )
        action = random.choice(("Allow", "Deny"))
        bound["paramRef"] = {"parameterNotFoundAction": action, **chosen}
        if random.random() < 0.6 and spec["paramKind"]["kind"] != "Namespace":
            bound["paramRef"]["namespace"] = random.choice(("default", "default", "red", "gone"))
    return bound


def _validation(random: Random) -> dict[str, Any]:
    if random.random() < 0.65:
        check = random.choice(_CHECKS)
    else:
        check = expressions.expression(random, "object.spec", 2)
    found: dict[str, Any] = {"expression": check}
    if random.random() < 0.4:
        found["message"] = random.choice(("told", "  in blanks ", "of %s"))
    if random.random() < 0.5:
        found["messageExpression"] = random.choice(_MESSAGES)
    if random.random() < 0.5:
        reasons = ("Invalid", "Forbidden", "RequestEntityTooLarge", "Invalid", "Unauthorized")
        found["reason"] = random.choices(reasons, (4, 4, 4, 4, 1))[0]
    return found


_ACTIONS: Final = (["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Warn", "Audit"], ["Deny", "Audit"])


def validating(number: int, random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a ValidatingAdmissionPolicy and its binding."""
    spec = _spec(random, mutates=False)
    spec["validations"] = [_validation(random) for _ in range(random.randrange(1, 4))]
    if random.random() < 0.4:
        chosen = random.sample(_ANNOTATIONS, random.randrange(1, 3))
        spec["auditAnnotations"] = [
            {"key": f"k{i}", "valueExpression": each} for i, each in enumerate(chosen)
        ]
    _param_kind(number, spec, random)
    bound = _binding(number, spec, random)
    bound["validationActions"] = random.choice(_ACTIONS)
    head = HEAD | {"metadata": {"name": f"d{number}"}}
    return (
        head | {"kind": "ValidatingAdmissionPolicy", "spec": spec},
        head | {"kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    )


def mutating(number: int, random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a MutatingAdmissionPolicy and its binding."""
    spec = _spec(random, mutates=True)
    spec["reinvocationPolicy"] = random.choice(("Never", "IfNeeded"))
    spec["mutations"] = [_mutation(random) for _ in range(random.randrange(1, 3))]
    _param_kind(number, spec, random)
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
