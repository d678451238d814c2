"""How a machine becomes a node of a cluster elsewhere: whom it trusts, and who vouches for it."""

import asyncio
import base64
import json
import logging
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.transport import Unreachable
from kedge.machinery import atomic
from kedge.machinery.certificates import blocks, key_hash, validity
from kedge.machinery.clock import Clock
from kedge.machinery.errors import StatusError
from kedge.node.config import Invitation
from kedge.node.host import node_record
from kedge.node.host.api_access import AUTHORITY, CERTIFICATE, KEY, SERVING
from kedge.node.host.certificates import CLIENT, CertificateDenied, obtain, private_key

log = logging.getLogger(__name__)

_CLUSTER_INFO: Final = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_AGENT: Final = "kedge-node"
_PATIENCE: Final = 2.0
"""Seconds that another agent of the same name gets to answer."""


class JoinFailure(Exception):
    """Why a machine does not become a node."""


def still_good(pki: Path, invitation: Invitation, clock: Clock) -> bool:
    """Whether the node has joined this very cluster before, and may still come in."""
    try:
        known = (pki / AUTHORITY).read_bytes()
        ends = validity((pki / CERTIFICATE).read_bytes()).ends
    except (OSError, ValueError):
        return False
    same = (
        not invitation.ca_pem or key_hash(invitation.ca_pem) == key_hash(known)
    ) and invitation.ca_hash in ("", key_hash(known))
    return same and clock.now() < ends


async def join(directory: Path, node: str, invitation: Invitation, clock: Clock) -> None:
    """Get a certificate for the node, and write down who it is and where its server is."""
    pki = directory / "pki"
    pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        authority = await trusted(invitation)
        atomic.write(pki / AUTHORITY, authority)
        key = private_key(pki / KEY)
        transport = HttpTransport(invitation.url, ca_pem=authority, token=invitation.token)
        client = Client(transport, user_agent=_AGENT)
        try:
            certificate = await obtain(client, clock, CLIENT, key, node)
        finally:
            await client.close()
    except Unreachable as error:
        raise JoinFailure(f"the server does not answer as it should: {error}") from error
    except CertificateDenied as error:
        raise JoinFailure(str(error)) from error
    except StatusError as error:
        raise JoinFailure(_explained(error)) from error
    await _check_alone(invitation.url, pki, certificate, node)
    (pki / SERVING).unlink(missing_ok=True)
    atomic.write(pki / CERTIFICATE, certificate)
    node_record.write_server(directory, invitation.url)
    log.info("joined node=%s server=%s", node, invitation.url)


async def _check_alone(url: str, pki: Path, certificate: bytes, node: str) -> None:
    """See that no other agent, of another user of this machine perhaps, is that node just now: two
    would run all of its pods twice, and neither would know why."""
    shown = pki / "joining.crt"
    atomic.write(shown, certificate)
    try:
        tls = ssl.create_default_context(cafile=str(pki / AUTHORITY))
        tls.load_cert_chain(shown, pki / KEY)
    finally:
        shown.unlink()
    client = Client(HttpTransport(url, tls=tls), user_agent=_AGENT)
    try:
        known = await client.get(NODES, node)
    except (StatusError, Unreachable):
        # Most often there is none of that name. Whatever else it is shows when the node comes up.
        return
    finally:
        await client.close()
    if (where := _endpoint(known)) and await _answers(*where):
        raise JoinFailure(
            f'the cluster has a node "{node}" already, and its agent answers at'
            f" {where[0]}:{where[1]}: choose another name with --node-name"
        )


def _endpoint(node: Node) -> tuple[str, int] | None:
    """Where the agent of a node listens, as it said itself."""
    port = node.status.daemonEndpoints.kubeletEndpoint.Port
    hosts = [each.address for each in node.status.addresses if each.type == "InternalIP"]
    return (hosts[0], port) if hosts and port else None


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def _explained(error: StatusError) -> str:
    if error.code == 401:
        return (
            "the server does not know the token, or its time is over: 'kedge token create"
            " --print-join-command' on the server's machine makes a new one"
        )
    return f"the server refuses: {error.message}"


async def trusted(invitation: Invitation) -> bytes:
    """The cluster's authority, which the inviter has told or whose key they have told."""
    if invitation.ca_pem:
        return invitation.ca_pem
    if not invitation.ca_hash:
        return await _told_by_a_server_the_machine_trusts(invitation.url)
    # Whoever answers is not trusted: only what they say is looked at, and the hash decides.
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    authority = await _told(invitation.url, anybody)
    # All of them, since all of them would be trusted.
    if not {key_hash(each) for each in blocks(authority)} <= {invitation.ca_hash}:
        raise JoinFailure(
            f"the server at {invitation.url} is not of the cluster with the authority"
            f" {invitation.ca_hash}: it shows {key_hash(authority)}"
        )
    return authority


async def _told_by_a_server_the_machine_trusts(url: str) -> bytes:
    try:
        return await _told(url, ssl.create_default_context())
    except Unreachable as error:
        if not isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise
        raise JoinFailure(
            f"this machine has no reason to trust {url}: give --ca-cert-hash, which 'kedge token"
            " create --print-join-command' prints on the server's machine, or --ca-cert"
        ) from error


async def _told(url: str, tls: ssl.SSLContext) -> bytes:
    """The authority that a server names to everybody who asks."""
    client = Client(HttpTransport(url, tls=tls), user_agent=_AGENT)
    try:
        reply = await client.fetch(_CLUSTER_INFO, {})
    finally:
        await client.close()
    if reply.status == 403:
        raise JoinFailure(
            f"{urlsplit(url).netloc} does not let machines join: no usable bootstrap token exists."
            " 'kedge token create --print-join-command' on the server's machine makes one"
        )
    if reply.status != 200:
        raise JoinFailure(
            f"{urlsplit(url).netloc} does not say which cluster it is of (status {reply.status}):"
            " name its authority with --ca-cert"
        )
    try:
        content = json.loads(reply.body)["data"]["kubeconfig"]
        authority = _authority(content)
        key_hash(authority)
    except (ValueError, KeyError, TypeError) as error:
        raise JoinFailure(f"{urlsplit(url).netloc} names no authority: {error}") from error
    return authority


def _authority(kubeconfig: str) -> bytes:
    from kedge.machinery import yaml_text  # only to join, and it takes a while to load

    content: Any = yaml_text.read(kubeconfig)
    return base64.b64decode(content["clusters"][0]["cluster"]["certificate-authority-data"])
