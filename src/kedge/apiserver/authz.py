"""Who may do what: the administrator everything, strangers only ask how the server is."""

from kedge.apiserver.request import Request, User
from kedge.machinery.errors import StatusError, forbidden

PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")


def may(user: User, verb: str, path: str) -> bool:
    """Whether a user may use a path that names no resource."""
    if "system:masters" in user.groups:
        return True
    return verb == "get" and (
        path in PUBLIC or path.startswith(("/livez/", "/readyz/", "/healthz/"))
    )


def may_access(user: User) -> bool:
    """Whether a user may touch resources."""
    return "system:masters" in user.groups


def check(request: Request) -> None:
    """403 for everybody else, worded as Kubernetes words it."""
    if not may_access(request.user):
        raise denied(request)


def denied(request: Request) -> StatusError:
    resource = request.resource
    plural = resource.plural + (f"/{request.subresource}" if request.subresource else "")
    where = (
        f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
    )
    why = (
        f'User "{request.user.name}" cannot {request.verb} resource "{plural}" '
        f'in API group "{resource.group}" {where}'
    )
    return forbidden(resource.group, plural, request.name, why)


def denied_path(user: User, verb: str, path: str) -> StatusError:
    message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
    return StatusError(403, "Forbidden", message, details={})
