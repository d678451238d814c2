"""DenyServiceExternalIPs: refuses external IPs of Services, which take the traffic of others."""

from kedge.api.core_v1.service_types import Service
from kedge.apiserver.admission.chain import Attempt, ValidatingPlugin
from kedge.apiserver.admission.refusal import refused


class DenyServiceExternalIPs(ValidatingPlugin):
    """Refuses Services with external IPs that they did not have before.

    Nodes send connections to an external IP to the Service, also if the address belongs to another
    machine (CVE-2020-8554).
    """

    name = "DenyServiceExternalIPs"

    async def validate(self, attempt: Attempt) -> None:
        if isinstance(attempt.object, Service) and not attempt.request.subresource:
            known = attempt.old.spec.externalIPs if isinstance(attempt.old, Service) else ()
            if not set(attempt.object.spec.externalIPs) <= set(known):
                raise refused(attempt, "Use of external IPs is denied by admission control")
