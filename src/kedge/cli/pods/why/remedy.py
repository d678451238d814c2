"""Remedy: the commands that change the resources of a pod, or of the workload that made it."""

import json
import shlex
from typing import NamedTuple

from kedge.cli.pods.why.slow_subject import SlowSubject
from kedge.machinery.quantity import Format, Quantity

_MEBIBYTE = 1 << 20


class Remedy(NamedTuple):
    """A pod, and the workload that made it."""

    namespace: str
    pod: str
    workload: str = ""
    """Such as deployment/web; empty if the pod itself is resized."""

    def resize(self, subject: SlowSubject, resource: str, limit: Quantity) -> str:
        """Return the command for a higher limit. A request that equals the limit follows it, so
        that the pod keeps its QoS class."""
        now = subject.resources
        changed = {"limits": {resource: str(limit)}}
        if now.requests.get(resource, now.limits.get(resource)) == now.limits.get(resource):
            changed["requests"] = {resource: str(limit)}
        return self._command(subject, changed)

    def request(self, subject: SlowSubject, resource: str, amount: Quantity) -> str:
        """Return the command for a higher request; the limit is never below it."""
        changed = {"requests": {resource: str(amount)}}
        limit = subject.resources.limits.get(resource)
        if limit is not None and limit < amount:
            changed["limits"] = {resource: str(amount)}
        return self._command(subject, changed)

    def recommend(self) -> str:
        """Return the command that proposes sizes."""
        return f"kedge recommend {self.workload or f'pod/{self.pod}'} -n {self.namespace}"

    def _command(self, subject: SlowSubject, changed: dict[str, dict[str, str]]) -> str:
        kubectl = f"kubectl -n {self.namespace}"
        if self.workload and subject.name:
            flags = [
                f"--{sort}={resource}={amount}"
                for sort, amounts in changed.items()
                for resource, amount in amounts.items()
            ]
            what = f"{self.workload} -c {subject.name}"
            return f"{kubectl} set resources {what} {' '.join(flags)}"
        if not subject.name:
            spec: object = {"resources": changed}
        else:
            spec = {"containers": [{"name": subject.name, "resources": changed}]}
        patch = shlex.quote(json.dumps({"spec": spec}, separators=(",", ":")))
        return f"{kubectl} patch pod {self.pod} --subresource resize -p {patch}"


def grown(amount: Quantity, percent: int) -> Quantity:
    """Return this share of an amount, rounded up to thousandths of a core or to mebibytes."""
    nanos = amount.nanos * percent // 100
    if amount.format is Format.BINARY_SI or amount.nanos >= _MEBIBYTE * 1_000_000_000:
        mebibytes = -(-nanos // (_MEBIBYTE * 1_000_000_000))
        return Quantity.from_value(mebibytes * _MEBIBYTE, Format.BINARY_SI)
    return Quantity.from_milli(-(-nanos // 1_000_000))
