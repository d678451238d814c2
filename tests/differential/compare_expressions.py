"""Compare CEL of two API servers: `python -m tests.differential.compare_expressions --help`."""

import argparse
import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from tests.differential import expressions, policy_samples, rule_samples
from tests.differential.cel_servers import HttpAnswer, Server

from kedge.machinery.clock import SystemClock

BATCH = 20
CHECKS = 6
OBJECTS = 3
POLICIES = 50
"""Policies of a sort that are in effect at the same time."""
GROUP = "differential.example.com"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NAMESPACES = {"default": {}, "red": {"team": "red"}, "blue": {"team": "blue"}}
SORTS = {"validating": policy_samples.validating, "mutating": policy_samples.mutating}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Comparison:
    """Both servers, and the outcomes so far."""

    def __init__(self, reference: Server, candidate: Server) -> None:
        self.servers = reference, candidate
        self.figures: Counter[str] = Counter()
        self._unjudged: list[tuple[str, str, list[HttpAnswer], Any]] = []

    async def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> list[HttpAnswer]:
        sent = (each.send(method, path, body, headers) for each in self.servers)
        return list(await asyncio.gather(*sent))

    async def post(self, path: str, body: Any) -> list[HttpAnswer]:
        return await self.send("POST", path, body)

    async def delete(self, path: str) -> None:
        await self.send("DELETE", path)

    def judge(self, what: str, answers: list[HttpAnswer], about: Any) -> bool:
        if answers[0].status == 0:
            # It panics in some requests, and closes their connections without a response.
            self.figures[f"{what}: the reference failed"] += 1
            return False
        same = answers[0] == answers[1]
        self.figures[f"{what}: {'same' if same else 'different'}"] += 1
        if not same:
            one, two = (
                {*each.causes, *each.warnings, each.object, each.annotations} for each in answers
            )
            print(json.dumps({
                "what": what, "status": [each.status for each in answers],
                "reference": sorted(one - two), "candidate": sorted(two - one), "about": about,
            }, ensure_ascii=False)[:4000], flush=True)  # fmt: skip
        return same

    async def ask(self, what: str, method: str, path: str, body: Any, about: Any) -> None:
        """Send a request whose answer is judged by `settle`, with its audit annotations."""
        audit = str(uuid.uuid4())
        headers = {"Audit-ID": audit}
        if "alice" in path:
            headers["Impersonate-User"] = "alice"
        answers = await self.send(method, path, body, headers)
        self._unjudged.append((what, audit, answers, about))

    async def settle(self) -> None:
        """Judge the answers that wait for the audit logs."""
        await SystemClock().sleep(1)
        kept = [each.annotations() for each in self.servers]
        for what, audit, answers, about in self._unjudged:
            whole = [
                answer._replace(annotations=annotations.get(audit, ""))
                for answer, annotations in zip(answers, kept, strict=True)
            ]
            self.judge(what, whole, about)
        self._unjudged.clear()

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
            answers = await self.post(f"{url}?dryRun=All", _object(number, i, spec))
            self.judge("object", answers, [rules, spec])
            self.figures["evaluations of rules"] += len(rules)
        await self.delete(f"{CRDS}/cels{number}.{GROUP}")

    async def changes(self, number: int, random: Random) -> None:
        """Compare rules with all of their parts, and updates of objects that break them."""
        good = []
        for i in range(BATCH):
            found = rule_samples.sample(random)
            body = rule_samples.definition(number * 1000 + i, [found], ruled=True)
            answers = await self.post(f"{CRDS}?dryRun=All", body)
            self.judge("whole rule", answers, found)
            if all(each.status == 201 for each in answers):
                good.append(found)
        await self.post(CRDS, rule_samples.definition(number, good, ruled=False))
        url = f"/apis/{GROUP}/v1/namespaces/default/cels{number}"
        await SystemClock().sleep(3)
        olds = []
        for i in range(OBJECTS):
            olds.append({f"r{k}": rule_samples.value(n, random) for k, (n, _) in enumerate(good)})
            await self.post(url, _object(number, i, olds[-1]))
        ruled = rule_samples.definition(number, good, ruled=True)
        patch = {"spec": {"versions": ruled["spec"]["versions"]}}
        await self.send("PATCH", f"{CRDS}/cels{number}.{GROUP}", patch, MERGE)
        await SystemClock().sleep(3)
        for i, old in enumerate(olds):
            new = {
                f"r{k}": rule_samples.changed(n, old[f"r{k}"], random)
                for k, (n, _) in enumerate(good)
            }
            update = await self.send("PATCH", f"{url}/o{i}?dryRun=All", {"spec": new}, MERGE)
            self.judge("update", update, [good, old, new])
            made = await self.post(f"{url}?dryRun=All", _object(number, i, new, "new"))
            self.judge("create", made, [good, new])
            self.figures["evaluations of whole rules"] += 2 * len(good)
        await self.delete(f"{CRDS}/cels{number}.{GROUP}")

    async def whole_policies(self, first: int, count: int, random: Random) -> None:
        """Compare policies of both sorts with parameters, conditions, variables and mutations."""
        numbers = range(2 * first, 2 * (first + count))
        url = f"/apis/{GROUP}/v1/namespaces/default/policysubjects"
        for number in numbers:
            await self.post(url, _subject(number, f"old{number}", expressions.value(random)))
        bound = []
        for number in numbers:
            sort = ("validating", "mutating")[number % 2]
            policy, binding = SORTS[sort](number, random)
            answers = await self.post(f"{ADMISSION}/{sort}admissionpolicies", policy)
            self.judge(f"{sort} policy", answers, policy["spec"])
            if all(each.status == 201 for each in answers):
                made = await self.post(f"{ADMISSION}/{sort}admissionpolicybindings", binding)
                self.judge(f"{sort} binding", made, binding["spec"])
                bound.append((sort, number, policy["spec"], binding["spec"]))
        await SystemClock().sleep(8)
        for sort, number, spec, binding in bound:
            await self._requests(sort, number, random, [spec, binding])
        await self.settle()
        for number in numbers:
            sort = ("validating", "mutating")[number % 2]
            for kind in ("policies", "policybindings"):
                await self.delete(f"{ADMISSION}/{sort}admission{kind}/d{number}")

    async def _requests(self, sort: str, number: int, random: Random, about: Any) -> None:
        """Create, change and delete an object that a policy is about, without a lasting effect."""
        what = f"{sort} request"
        for _ in range(OBJECTS):
            version = random.choice(("v1", "v1", "v1", "v2"))
            namespace = random.choice(("default", "default", "red", "blue"))
            base = f"/apis/{GROUP}/{version}/namespaces/{namespace}/policysubjects"
            user = random.choice(("", "", "&fieldManager=alice"))
            made = _subject(number, "o", expressions.value(random), version)
            told = [about, version, namespace, user, made["spec"]]
            await self.ask(what, "POST", f"{base}?dryRun=All{user}", made, told)
        old = f"/apis/{GROUP}/v1/namespaces/default/policysubjects/old{number}?dryRun=All"
        patch = {"spec": expressions.value(random)}
        headers = {**MERGE, "Audit-ID": str(uuid.uuid4())}
        answers = await self.send("PATCH", old, patch, headers)
        self._unjudged.append((f"{what}, update", headers["Audit-ID"], answers, [about, patch]))
        await self.ask(f"{what}, delete", "DELETE", old, None, about)

    async def make_subject(self) -> None:
        """Define the kind that policies are about, a kind of parameters, and the parameters."""
        for name, labels in NAMESPACES.items():
            await self.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        await self._define("PolicySubject", {"spec": expressions.SUBJECT}, ("v1", "v2"))
        limit = {"type": "object", "properties": {"limit": {"type": "integer"}}}
        data = {"type": "object", "additionalProperties": {"type": "string"}}
        await self._define("PolicyParam", {"spec": limit, "data": data}, ("v1",))
        rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "differential"}}
        base = "/apis/rbac.authorization.k8s.io/v1"
        await self.post(f"{base}/clusterroles", head | {"kind": "ClusterRole", "rules": rules})
        role = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "differential",
        }
        subjects = [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]
        bound = head | {"kind": "ClusterRoleBinding", "roleRef": role, "subjects": subjects}
        await self.post(f"{base}/clusterrolebindings", bound)
        await SystemClock().sleep(3)
        for i, data in enumerate(policy_samples.PARAMS):
            labels = {"set": "one" if i == 1 else "all"}
            param = {"metadata": {"name": f"param{i}", "labels": labels}, "data": data}
            await self.post("/api/v1/namespaces/default/configmaps", param)
            custom = param | {"apiVersion": f"{GROUP}/v1", "kind": "PolicyParam"}
            custom["spec"] = {"limit": i}
            await self.post(f"/apis/{GROUP}/v1/namespaces/default/policyparams", custom)
        await self.post("/api/v1/namespaces/red/configmaps", param)

    async def _define(self, kind: str, nodes: dict[str, Any], versions: tuple[str, ...]) -> None:
        made = expressions.definition(0, [])
        plural = f"{kind.lower()}s"
        made["metadata"]["name"] = f"{plural}.{GROUP}"
        made["spec"]["names"] = {"plural": plural, "kind": kind}
        schema = {"openAPIV3Schema": {"type": "object", "properties": nodes}}
        made["spec"]["versions"] = [
            {"name": name, "served": True, "storage": name == "v1", "schema": schema}
            for name in versions
        ]
        await self.post(CRDS, made)

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
        url = f"/apis/{GROUP}/v1/namespaces/default/policysubjects?dryRun=All"
        for number, checks in bound:
            for _ in range(OBJECTS):
                made = _subject(number, "o", expressions.value(random))
                self.judge("request", await self.post(url, made), [checks, made["spec"]])
                self.figures["evaluations of policies"] += len(checks)
        for number in range(count):
            for kind in ("validatingadmissionpolicies", "validatingadmissionpolicybindings"):
                await self.delete(f"{ADMISSION}/{kind}/d{number}")

    async def remove_subjects(self) -> None:
        for plural in ("policysubjects", "policyparams"):
            await self.delete(f"{CRDS}/{plural}.{GROUP}")
        for namespace in ("default", "red"):
            for i in range(len(policy_samples.PARAMS)):
                await self.delete(f"/api/v1/namespaces/{namespace}/configmaps/param{i}")


def _object(number: int, i: int, spec: Any, prefix: str = "o") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1", "kind": f"Cel{number}",
        "metadata": {"name": f"{prefix}{i}"}, "spec": spec,
    }  # fmt: skip


def _subject(number: int, name: str, spec: Any, version: str = "v1") -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{version}", "kind": "PolicySubject",
        "metadata": {"name": name, "labels": {"p": str(number)}}, "spec": spec,
    }  # fmt: skip


async def _run(options: argparse.Namespace) -> None:
    logs = options.audit_logs or (None, None)
    reference, candidate = Server(options.reference, logs[0]), Server(options.candidate, logs[1])
    compared = Comparison(reference, candidate)
    random = Random(options.seed)
    for number in range(options.rules // BATCH):
        await compared.rules(number, random)
    for number in range(options.whole_rules // BATCH):
        await compared.changes(1000 + number, random)
    if options.policies or options.whole:
        await compared.make_subject()
    if options.policies:
        await compared.policies(options.policies, random)
    for first in range(0, options.whole, POLICIES):
        await compared.whole_policies(first, min(POLICIES, options.whole - first), random)
    await compared.remove_subjects()
    for name, count in sorted(compared.figures.items()):
        print(f"{name}: {count}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the CEL of two API servers.")
    parser.add_argument("reference", help="URL and token of the server that is right")
    parser.add_argument(
        "candidate", help="URL and token of the other; its user has the same name and groups"
    )
    parser.add_argument("--rules", type=int, default=1000, help="rules (%(default)s)")
    parser.add_argument(
        "--whole-rules", type=int, default=500, help="rules with all parts (%(default)s)"
    )
    parser.add_argument("--policies", type=int, default=100, help="policies (%(default)s)")
    parser.add_argument(
        "--whole", type=int, default=250, help="policies of each sort with all parts (%(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the expressions (%(default)s)")
    parser.add_argument(
        "--audit-logs", type=Path, nargs=2, help="audit logs of both, to compare annotations"
    )
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
