"""Compare CEL of two API servers: `python -m tests.differential.compare_expressions --help`."""

import argparse
import asyncio
import json
import re
import ssl
import urllib.error
import urllib.request
from collections import Counter
from random import Random
from typing import Any, NamedTuple

from tests.differential import expressions, policy_samples

from kedge.machinery.clock import SystemClock

BATCH = 20
CHECKS = 6
OBJECTS = 3
GROUP = "differential.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"


_PANIC = re.compile(
    r": (internal error: interface conversion: .*?|no such key: \w+) (?=evaluating)"
)


class HttpAnswer(NamedTuple):
    """The parts of an answer that are compared."""

    status: int
    causes: tuple[str, ...]
    warnings: tuple[str, ...]
    object: str = ""
    """The parts of the object that policies may change, as JSON."""


class Server:
    """An API server: a URL and a token; its certificate is not verified."""

    def __init__(self, text: str) -> None:
        self._url, _, self._token = text.partition(",")
        self._context = ssl._create_unverified_context()

    async def post(self, path: str, body: Any) -> HttpAnswer:
        return await asyncio.to_thread(self._send, "POST", path, body)

    async def delete(self, path: str) -> HttpAnswer:
        return await asyncio.to_thread(self._send, "DELETE", path, None)

    def _send(self, method: str, path: str, body: Any) -> HttpAnswer:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        sent = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(sent, context=self._context) as answer:
                warned = answer.headers.get_all("Warning") or []
                made = _changeable(json.loads(answer.read()))
                return _answer(answer.status, {}, warned)._replace(object=made)
        except urllib.error.HTTPError as error:
            warnings = error.headers.get_all("Warning") or []
            try:
                document = json.loads(error.read())
            except ValueError:
                document = {}
            return _answer(error.code, document, warnings)


def _changeable(document: dict[str, Any]) -> str:
    if document.get("kind") != "PolicySubject":
        return ""
    meta = document["metadata"]
    parts = [document.get("spec"), meta.get("labels"), meta.get("annotations")]
    return json.dumps(_plain(parts), sort_keys=True)


def _plain(value: Any) -> Any:
    """Return a value in which 1.0 is 1: servers write such numbers in different ways."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _answer(status: int, document: dict[str, Any], warnings: list[str]) -> HttpAnswer:
    causes = (document.get("details") or {}).get("causes") or []
    told = sorted(f"{each.get('field')}: {each.get('message')}" for each in causes)
    # A panic of upstream that it reports as an error of the expression.
    told = [_PANIC.sub(": no such key: * ", each) for each in told]
    return HttpAnswer(status, tuple(told or [document.get("message", "")]), tuple(sorted(warnings)))


class Comparison:
    """Both servers, and the outcomes so far."""

    def __init__(self, reference: Server, candidate: Server) -> None:
        self.servers = reference, candidate
        self.figures: Counter[str] = Counter()

    async def post(self, path: str, body: Any) -> list[HttpAnswer]:
        return list(await asyncio.gather(*(each.post(path, body) for each in self.servers)))

    async def delete(self, path: str) -> None:
        await asyncio.gather(*(each.delete(path) for each in self.servers))

    def judge(self, what: str, answers: list[HttpAnswer], about: Any) -> bool:
        same = answers[0] == answers[1]
        self.figures[f"{what}: {'same' if same else 'different'}"] += 1
        if not same:
            one, two = ({*each.causes, *each.warnings, each.object} for each in answers)
            print(json.dumps({
                "what": what, "status": [each.status for each in answers],
                "reference": sorted(one - two), "candidate": sorted(two - one), "about": about,
            }, ensure_ascii=False)[:3000])  # fmt: skip
        return same

    async def rules(self, number: int, random: Random) -> None:
        rules = [expressions.expression(random, "self") for _ in range(BATCH)]
        good = []
        for i, rule in enumerate(rules):
            body = expressions.definition(number * 1000 + i, [rule])
            answers = await self.post(f"{CRDS}?dryRun=All", body)
            self.judge("rule", answers, rule)
            if all(each.status == 201 for each in answers):
                good.append(rule)
        if good:
            await self._objects(number, good, random)

    async def _objects(self, number: int, rules: list[str], random: Random) -> None:
        body = expressions.definition(number, rules)
        answers = await self.post(CRDS, body)
        if not all(each.status == 201 for each in answers):
            return
        url = f"/apis/{GROUP}/v1/namespaces/default/cels{number}"
        await SystemClock().sleep(3)
        for i in range(OBJECTS):
            spec = {f"r{k}": expressions.value(random) for k in range(len(rules))}
            made = {
                "apiVersion": f"{GROUP}/v1", "kind": f"Cel{number}",
                "metadata": {"name": f"o{i}"}, "spec": spec,
            }  # fmt: skip
            answers = await self.post(f"{url}?dryRun=All", made)
            self.judge("object", answers, [rules, spec])
            self.figures["evaluations of rules"] += len(rules)
        await self.delete(f"{CRDS}/cels{number}.{GROUP}")

    async def whole_policies(self, count: int, random: Random) -> None:
        """Compare policies of both sorts with parameters, conditions, variables and mutations."""
        for i, data in enumerate(policy_samples.PARAMS):
            labels = {"set": "all"}
            param = {"metadata": {"name": f"param{i}", "labels": labels}, "data": data}
            await self.post("/api/v1/namespaces/default/configmaps", param)
        sorts = {
            "validating": policy_samples.validating,
            "mutating": policy_samples.mutating,
        }
        bound = []
        for number in range(count):
            for sort, make in sorts.items():
                key = 2 * number + (sort == "mutating")
                policy, binding = make(key, random)
                answers = await self.post(f"{ADMISSION}/{sort}admissionpolicies", policy)
                self.judge(f"{sort} policy", answers, policy["spec"])
                if all(each.status == 201 for each in answers):
                    await self.post(f"{ADMISSION}/{sort}admissionpolicybindings", binding)
                    bound.append((sort, key, policy["spec"], binding["spec"]))
        await SystemClock().sleep(8)
        for sort, number, spec, binding in bound:
            for _ in range(OBJECTS):
                value = expressions.value(random)
                await self._ask(f"{sort} request", number, value, [spec, binding])
        for number in range(2 * count):
            for sort in sorts:
                for kind in ("policies", "policybindings"):
                    await self.delete(f"{ADMISSION}/{sort}admission{kind}/d{number}")

    async def _ask(self, what: str, number: int, spec: Any, about: Any) -> None:
        url = f"/apis/{GROUP}/v1/namespaces/default/policysubjects?dryRun=All"
        made = {
            "apiVersion": f"{GROUP}/v1", "kind": "PolicySubject",
            "metadata": {"name": "o", "labels": {"p": str(number)}}, "spec": spec,
        }  # fmt: skip
        self.judge(what, await self.post(url, made), [about, spec])

    async def make_subject(self) -> None:
        """Define the kind that policies are about."""
        subject = expressions.definition(0, ["true"])
        subject["metadata"]["name"] = f"policysubjects.{GROUP}"
        subject["spec"]["names"] = {"plural": "policysubjects", "kind": "PolicySubject"}
        versions = subject["spec"]["versions"]
        nodes = {"type": "object", "properties": {"spec": expressions.SCHEMA}}
        versions[0]["schema"]["openAPIV3Schema"] = nodes
        await self.post(CRDS, subject)
        await SystemClock().sleep(2)

    async def policies(self, count: int, random: Random) -> None:
        bound = []
        for number in range(count):
            checks = [expressions.expression(random, "object.spec") for _ in range(CHECKS)]
            parts = list(expressions.policy(number, checks))
            answers = await self.post(f"{ADMISSION}/validatingadmissionpolicies", parts[0])
            self.judge("policy", answers, checks)
            if all(each.status == 201 for each in answers):
                await self.post(f"{ADMISSION}/validatingadmissionpolicybindings", parts[1])
                bound.append((number, checks))
        await SystemClock().sleep(5)
        for number, checks in bound:
            for _ in range(OBJECTS):
                await self._ask("request", number, expressions.value(random), checks)
                self.figures["evaluations of policies"] += len(checks)
        for number in range(count):
            for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
                await self.delete(f"{ADMISSION}/{kind}/d{number}")


async def _run(options: argparse.Namespace) -> None:
    compared = Comparison(Server(options.reference), Server(options.candidate))
    random = Random(options.seed)
    for number in range(options.rules // BATCH):
        await compared.rules(number, random)
    await compared.make_subject()
    if options.policies:
        await compared.policies(options.policies, random)
    if options.whole:
        await compared.whole_policies(options.whole, random)
    await compared.delete(f"{CRDS}/policysubjects.{GROUP}")
    for name, count in sorted(compared.figures.items()):
        print(f"{name}: {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the CEL of two API servers.")
    parser.add_argument("reference", help="URL and token of the server that is right")
    parser.add_argument("candidate", help="URL and token of the other")
    parser.add_argument("--rules", type=int, default=1000, help="rules (%(default)s)")
    parser.add_argument("--policies", type=int, default=100, help="policies (%(default)s)")
    parser.add_argument(
        "--whole", type=int, default=50, help="policies of each sort with all parts (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the expressions (%(default)s)")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
