"""The current namespace of a context: read it, or change it."""

from kedge.api.core_v1 import namespace
from kedge.api.model import ObjectMeta
from kedge.cli.failure import Failure
from kedge.cli.objects.client_flags import ClientConfig
from kedge.cli.objects.connection import ApiSession
from kedge.client import kubeconfig, login
from kedge.client.kubeconfig import KubeconfigError
from kedge.machinery.errors import StatusError
from kedge.machinery.names import dns_label


def namespace_of(config: ClientConfig) -> str:
    """Return the namespace of the context."""
    try:
        return login.read(config.files, config.context).namespace or "default"
    except KubeconfigError as error:
        raise Failure(str(error)) from error


def check_name(name: str) -> None:
    """Fail if no namespace can have the name."""
    if problems := dns_label(name):
        raise Failure(f'"{name}" is no name for a namespace: {problems[0]}')


async def change(there: ApiSession, name: str) -> int:
    """Have the context mean the namespace, which is created if it is missing."""
    if await _created(there, name):
        print(f"namespace/{name} created")
    try:
        kubeconfig.set_namespace(there.login.file, there.login.context, name)
    except KubeconfigError as error:
        raise Failure(str(error)) from error
    print(f'Context "{there.login.context}" now uses the namespace "{name}".')
    return 0


async def _created(there: ApiSession, name: str) -> bool:
    """Whether the namespace had to be created."""
    try:
        await there.client.get(namespace.RESOURCE, name)
    except StatusError as error:
        if error.code == 403:
            # A user of a namespace is not always allowed to read the Namespace object.
            return False
        if error.code != 404:
            raise
        new = namespace.Namespace(metadata=ObjectMeta(name=name))
        await there.client.create(namespace.RESOURCE, new)
        return True
    return False
