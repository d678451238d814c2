"""ValidatingAdmissionPolicy: evaluates the policies that are bound to a request."""

from typing import TYPE_CHECKING

from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.first_binding import FirstBinding

if TYPE_CHECKING:
    from kedge.apiserver.policies.validating_policies import ValidatingPolicies


class ValidatingAdmissionPolicy(ValidatingPlugin):
    """Evaluates ValidatingAdmissionPolicies for the requests that their bindings match."""

    name = "ValidatingAdmissionPolicy"

    def __init__(self, policies: "FirstBinding[ValidatingPolicies]") -> None:
        self._policies = policies

    async def validate(self, attempt: Attempt) -> None:
        if (policies := self._policies.get()) is not None:
            await policies.validate(attempt)
