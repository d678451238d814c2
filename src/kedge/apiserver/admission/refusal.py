"""How a plugin says no."""

from kedge.apiserver.admission.chain import Attempt
from kedge.machinery.errors import StatusError, forbidden


def refused(attempt: Attempt, why: str) -> StatusError:
    """403 for what the attempt is about."""
    request = attempt.request
    name = request.name
    if not name and attempt.object is not None:
        name = attempt.object.metadata.name
    return forbidden(request.resource.group, request.resource.plural, name or "Unknown", why)
