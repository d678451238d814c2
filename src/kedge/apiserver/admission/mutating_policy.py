"""MutatingAdmissionPolicy: the policies that are bound to a request change its object."""

from typing import TYPE_CHECKING

from kedge.api.model import Object
from kedge.apiserver.admission.chain import Attempt, MutatingPlugin
from kedge.apiserver.admission.first_binding import FirstBinding

if TYPE_CHECKING:
    from kedge.apiserver.policies.mutating_policies import MutatingPolicies


class MutatingAdmissionPolicy(MutatingPlugin):
    """Changes objects by the MutatingAdmissionPolicies whose bindings match the request.

    If a policy changes an object, the plugins before this one run again, then the policies with the
    reinvocationPolicy IfNeeded that have not seen the latest change.
    """

    name = "MutatingAdmissionPolicy"

    def __init__(self, policies: "FirstBinding[MutatingPolicies]") -> None:
        self._policies = policies

    async def mutate(self, attempt: Attempt) -> Object | None:
        policies = self._policies.get()
        return attempt.object if policies is None else await policies.mutate(attempt)
