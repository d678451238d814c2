"""Generated CEL expressions: rules of definitions and policies, with objects for them."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "i": {"type": "integer"},
        "j": {"type": "integer", "default": 3},
        "s": {"type": "string", "maxLength": 30},
        "q": {"type": "string", "maxLength": 30},
        "b": {"type": "boolean"},
        "d": {"type": "number"},
        "l": {"type": "array", "maxItems": 6, "items": {"type": "integer"}},
        "ls": {"type": "array", "maxItems": 6, "items": {"type": "string", "maxLength": 20}},
        "st": {
            "type": "array",
            "maxItems": 6,
            "x-kubernetes-list-type": "set",
            "items": {"type": "string", "maxLength": 20},
        },
        "m": {
            "type": "object",
            "maxProperties": 6,
            "additionalProperties": {"type": "string", "maxLength": 20},
        },
        "o": {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y-z": {"type": "string", "maxLength": 9}},
        },
        "t": {"type": "string", "format": "date-time"},
        "u": {"type": "string", "format": "duration"},
        "p": {"x-kubernetes-int-or-string": True, "maxLength": 9},
    },
}
"""The schema at which each rule stands."""

SUBJECT: Final[dict[str, Any]] = {
    **SCHEMA,
    "properties": {
        **SCHEMA["properties"],
        "ml": {
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "required": ["k"],
                "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            },
        },
    },
}
"""The schema of the objects that policies are about."""

VALUES: Final[dict[str, list[Any]]] = {
    "i": [-7, 0, 1, 5, 9223372036854775807, -9223372036854775808],
    "j": [0, 2, 10],
    "s": [
        "",
        "a",
        "abc",
        "A-b",
        "10.0.0.1",
        "1.2.3",
        "v1.2",
        "a,b,c",
        "::1",
        "2001:db8::1",
        "a" * 29,
        "\t x ",
        "http://x.y:80/p?a=b",
        "déjà",
    ],
    "q": ["1", "500m", "1Gi", "x", "-3k", "10.0.0.0/8", "10.0.0.1/8", "1e3", "0.1", "5E", "100u"],
    "b": [True, False],
    "d": [0, 1.5, -2.25, 3, 1e20, 1e-7, 123456789.125],
    "l": [[], [1], [3, 1, 2], [2, 2, 5]],
    "ls": [[], ["a"], ["b", "a"], ["a", "b", "c"]],
    "st": [["a"], ["b", "a"], ["a", "b"]],
    "m": [{}, {"a": "b"}, {"a": "1", "k.1": "2"}],
    "o": [{}, {"x": 1}, {"x": 4, "y-z": "w"}],
    "t": ["2024-02-29T12:30:45Z", "1999-12-31T23:59:59.5+02:00"],
    "u": ["1h30m", "90s", "0.5s"],
    "p": [3, "25%", "abc"],
}

_INTS: Final = (
    "{r}.i", "{r}.j", "size({r}.l)", "{r}.l[0]", "{r}.l.max()", "{r}.l.sum()", "{r}.s.size()", "1",
    "-4", "{r}.o.x", "{r}.l.indexOf(2)", "{r}.s.indexOf('b')", "int({r}.d)", "{r}.t.getFullYear()",
    "{r}.t.getDayOfWeek()", "{r}.u.getSeconds()", "{r}.m.size()",
    "{r}.ls.filter(e, e > 'a').size()", "{r}.?o.x.orValue(7)", "int({r}.s)",
    "{r}.l.map(e, e * 2).sum()", "sign(quantity({r}.q))", "quantity({r}.q).asInteger()",
    "{r}.l.min()", "{r}.l.lastIndexOf(2)", "semver('1.2.3').minor()",
    "cidr('10.0.0.0/8').prefixLength()",
    "ip('10.0.0.1').family()", "quantity({r}.q).compareTo(quantity('1k'))",
    "{r}.s.lastIndexOf('a')",
    "{r}.t.getHours('Europe/Berlin')", "{r}.u.getMilliseconds()", "math.abs({r}.i)",
    "{r}.i / {r}.j", "{r}.i % {r}.j", "9223372036854775807 + {r}.j", "-{r}.i", "int({r}.t)",
    "{r}.l.slice(0, 1).sum()", "{r}.l.flatten().size()", "int(uint({r}.j))",
    "{r}.ls.reverse().size()",
    "{r}.l.transformList(k, v, k * v).sum()", "{r}.m.transformMapEntry(k, v, {{v: k}}).size()",
    "semver({r}.s).compareTo(semver('1.0.0'))", "{r}.s.findAll('[a-c]').size()",
)  # fmt: skip
_TEXTS: Final = (
    "{r}.s", "{r}.q", "'abc'", "''", "{r}.m['a']", "{r}.m.a", "{r}.ls[0]", "{r}.ls.join('-')",
    "{r}.s.lowerAscii()", "{r}.s.replace('a', 'b')", "{r}.s.substring(1)", "{r}.s.split(',')[0]",
    "string({r}.i)", "string({r}.d)", "string({r}.b)", "{r}.s.trim()", "{r}.s.find('[a-c]+')",
    "'%s-%d'.format([{r}.s, {r}.i])", "{r}.s.charAt(0)", "{r}.m[?'a'].orValue('n')",
    "string({r}.t)", "string({r}.u)", "url({r}.s).getHost()", "string(ip({r}.s))",
    "url({r}.s).getScheme()", "url({r}.s).getPort()", "url({r}.s).getEscapedPath()",
    "url({r}.s).getHostname()", "string(cidr({r}.q).masked())", "string(cidr({r}.q).ip())",
    "{r}.s.upperAscii()", "{r}.s.replace('a', 'b', 1)", "{r}.s.substring(0, 2)", "{r}.s.reverse()",
    "{r}.s.split(',', 2).join('+')", "'%b %x %o %e %f'.format([{r}.j, {r}.j, {r}.j, {r}.d, {r}.d])",
    "'%s'.format([{r}.l])", "'%s'.format([{r}.m])", "'%s %s'.format([{r}.u, {r}.t])",
    "strings.quote({r}.s)", "{r}.?m.a.orValue('d')", "{r}.ls[?0].orValue('e')", "string({r}.i)",
    "{r}.ls.filter(e, e != 'a').join(',')", "string(bytes({r}.s))", "string({r}.p)",
    "cel.bind(v, {r}.s, v + v)", "base64.encode(bytes({r}.s))", "{r}.s.find('(b)|(c)')",
)  # fmt: skip
_TRUTHS: Final = (
    "{r}.b", "has({r}.s)", "has({r}.o.x)", "{r}.s.startsWith('a')", "{r}.s.matches('^[a-z]+$')",
    "{r}.s in {r}.ls", "{r}.i in {r}.l", "'a' in {r}.m", "{r}.l.all(e, e > 0)",
    "{r}.l.exists(e, e == {r}.i)", "{r}.ls.exists_one(e, e == 'a')", "{r}.l.isSorted()",
    "{r}.m.all(k, k.size() < 2)", "isQuantity({r}.q)",
    "quantity({r}.q).isGreaterThan(quantity('2'))", "isIP({r}.s)", "isURL({r}.s)",
    "isSemver({r}.s)", "cidr({r}.q).containsIP({r}.s)", "{r}.st == ['b', 'a']",
    "['b', 'a'] == {r}.st", "{r}.l == [1]", "{r}.u > duration('1h')",
    "{r}.t < timestamp('2020-01-01T00:00:00Z')", "type({r}.p) == int", "{r}.d > {r}.i",
    "sets.contains({r}.ls, ['a'])", "{r}.o.y__dash__z == 'w'",
    "{r}.l.transformList(k, v, k + v) == [1]",
    "{r}.m.transformMap(k, v, v + 'x').exists(k, v, v == '1x')", "optional.of({r}.i).hasValue()",
    "format.dns1123Label().validate({r}.s).hasValue()", "{r}.p == 3", "{r}.l.sort() == {r}.l",
    "{r}.ls.distinct().size() == {r}.ls.size()", "semver({r}.s).major() == 1", "{r}.zz == 1",
    "{r}.i.foo()", "{r}.s + 1 == 'a'", "duration({r}.s) > duration('1s')", "{r}.b == 'x'",
    "{r}.l[{r}.i] == 1", "{r}.l.exists(i, v, i == v)", "{r}.m.exists_one(k, v, v == '1')",
    "{r}.l.existsOne(i, v, v == 2)", "sets.equivalent({r}.ls, {r}.st)",
    "sets.intersects({r}.l, [1, 2])",
    "isCIDR({r}.q)", "ip({r}.s).isLoopback()", "ip({r}.s) == ip('10.0.0.1')", "isIP({r}.q)",
    "cidr({r}.q).containsCIDR('10.1.0.0/16')", "cidr({r}.q).containsIP(ip('10.2.3.4'))",
    "url({r}.s).getQuery()['a'] == ['b']", "url({r}.s) == url('http://x.y')",
    "ip.isCanonical({r}.s)",
    "quantity({r}.q).isInteger()", "quantity({r}.q).add(quantity('1')) == quantity('2')",
    "quantity({r}.q).sub(1).isLessThan(quantity('1'))", "quantity({r}.q) == quantity('1000m')",
    "isSemver({r}.s, true)", "semver({r}.s, true).isGreaterThan(semver('0.1.0'))",
    "format.named('dns1123Subdomain').hasValue()", "!format.uuid().validate({r}.s).hasValue()",
    "format.named({r}.s).hasValue()", "!format.dns1035Label().validate({r}.s).hasValue()",
    "{r}.ls.all(i, e, e.size() > i)", "has({r}.m.a) && {r}.m.a == 'b'",
    "optional.none().hasValue()",
    "{r}.?o.?x.optMap(v, v * 2).orValue(0) == 2", "{r}.?s.optFlatMap(v, optional.of(v)).hasValue()",
    "optional.ofNonZeroValue({r}.i).hasValue()", "[?{r}.?s].size() == 1",
    "{{?'a': {r}.?s}}.size() == 1",
    "{r}.ls.sum() == 'a'", "{r}.s.matches('a{{1,3}}')", "{r}.s.matches('(')", "{r}.d == 3",
    "{r}.i == {r}.d", "{r}.j < 2u", "uint({r}.i) > 3u", "{r}.i > 1.5", "type({r}.d) == double",
    "dyn({r}.i) == dyn({r}.s)", "{r}.t + duration('1h') > {r}.t",
    "duration('1h') - {r}.u < duration('1s')",
    "timestamp({r}.s) < {r}.t", "{r}.u == duration('90s')", "b'abc' == bytes({r}.s)",
    "{r}.l + [1] == [1]", "{r}.m == {{'a': 'b'}}", "'a' in {r}.m && {r}.m['a'] in ['1', 'b']",
    "{r}.p == '25%'", "[1, 2.0, 3u] == [1.0, 2, 3]", "{r}.l.all(e, e / e == 1)", "1 / {r}.j > 0",
    "{r}.ls.map(e, e == 'a', e + 'z') == ['az']", "{r}.b ? {r}.i > 0 : {r}.s == ''",
    "math.greatest({r}.i, {r}.j) > 1", "{r}.s.startsWith({r}.q) || {r}.s.endsWith('c')",
    "{r}.s.contains('b') && !{r}.b", "null == dyn({r}.s)", "{r}.t.getDayOfYear() > 5",
)  # fmt: skip


def expression(random: Random, root: str, depth: int = 3) -> str:
    """Return a random expression that is true or false, or does not compile."""
    if depth == 0 or random.random() < 0.25:
        return random.choice(_TRUTHS).format(r=root)
    kind = random.randrange(6)
    if kind == 0:
        operator = random.choice(("&&", "||"))
        left, right = (expression(random, root, depth - 1) for _ in range(2))
        return f"({left}) {operator} ({right})"
    if kind == 1:
        return f"!({expression(random, root, depth - 1)})"
    if kind == 2:
        parts = [expression(random, root, depth - 1) for _ in range(3)]
        return "({}) ? ({}) : ({})".format(*parts)
    if kind == 3:
        operator = random.choice(("==", "!=", "<", ">="))
        return f"{_text(random, root)} {operator} {_text(random, root)}"
    operator = random.choice(("==", "<", ">=", "!="))
    return f"{_number(random, root)} {operator} {_number(random, root)}"


def _number(random: Random, root: str) -> str:
    first = random.choice(_INTS).format(r=root)
    if random.random() < 0.5:
        return first
    second = random.choice(_INTS).format(r=root)
    return f"({first} {random.choice('+-*/%')} {second})"


def _text(random: Random, root: str) -> str:
    first = random.choice(_TEXTS).format(r=root)
    if random.random() < 0.7:
        return first
    return f"({first} + {random.choice(_TEXTS).format(r=root)})"


def value(random: Random) -> dict[str, Any]:
    """Return a value for the schema, with some of its fields."""
    return {
        name: random.choice(choices) for name, choices in VALUES.items() if random.random() < 0.85
    }


def definition(number: int, rules: list[str]) -> dict[str, Any]:
    """Return a definition whose spec has one field per rule."""
    nodes = {
        f"r{i}": {**SCHEMA, "x-kubernetes-validations": [{"rule": rule}]}
        for i, rule in enumerate(rules)
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": nodes}}}
    plural = f"cels{number}"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.differential.example.com"},
        "spec": {
            "group": "differential.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": f"Cel{number}"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def policy(number: int, checks: list[str]) -> Iterator[dict[str, Any]]:
    """Yield a policy that warns, and its binding for objects with the label `p`."""
    rule = {
        "apiGroups": ["differential.example.com"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["policysubjects"],
    }
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": f"d{number}"}}
    yield head | {
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [
                {"expression": each, "message": str(i)} for i, each in enumerate(checks)
            ],
        },
    }
    yield head | {
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {
            "policyName": f"d{number}",
            "validationActions": ["Warn"],
            "matchResources": {"objectSelector": {"matchLabels": {"p": str(number)}}},
        },
    }
