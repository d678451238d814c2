"""Joining a cluster: the machine verifies the cluster's authority and obtains a certificate."""

import asyncio
import base64
import json
import logging
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from kedge.api.core_v1.node import RESOURCE as NODES
from kedge.api.core_v1.node_types import Node
from kedge.client.client import Client
from kedge.client.http import HttpTransport
from kedge.client.transport import Unreachable
from kedge.machinery import atomic
from kedge.machinery.certificates import blocks, key_hash, validity
from kedge.machinery.clock import Clock
from kedge.machinery.detached_jws import signature
from kedge.machinery.errors import StatusError
from kedge.node.config import Invitation
from kedge.node.host import node_record
from kedge.node.host.api_access import AUTHORITY, CERTIFICATE, KEY, SERVING
from kedge.node.host.certificates import CLIENT, CertificateDenied, obtain, private_key

log = logging.getLogger(__name__)

_CLUSTER_INFO: Final = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
_AGENT: Final = "kedge-node"
_ANSWER_SECONDS: Final = 2.0
"""Seconds that another agent with the same name has to answer."""


class JoinFailure(Exception):
    """The machine cannot become a node; the text says why."""


class ServerNotReached(JoinFailure):
    """No server answers there."""


def has_valid_certificate(pki: Path, invitation: Invitation, clock: Clock) -> bool:
    """Return whether the node has joined this cluster before and its certificate is valid."""
    try:
        known = (pki / AUTHORITY).read_bytes()
        ends = validity((pki / CERTIFICATE).read_bytes()).ends
    except (OSError, ValueError):
        return False
    same = (
        not invitation.ca_pem or key_hash(invitation.ca_pem) == key_hash(known)
    ) and invitation.ca_hash in ("", key_hash(known))
    return same and clock.now() < ends


async def join_first(directory: Path, node: str, invitation: Invitation, clock: Clock) -> None:
    """Join by the first server that can be reached."""
    urls = invitation.url.split(",")
    for number, url in enumerate(urls, 1):
        try:
            await join(directory, node, replace(invitation, url=url), clock)
        except ServerNotReached:
            if number == len(urls):
                raise
        else:
            return


async def join(directory: Path, node: str, invitation: Invitation, clock: Clock) -> None:
    """Obtain a certificate for the node, and store it with the address of the server."""
    pki = directory / "pki"
    pki.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        authority = await cluster_authority(invitation)
        atomic.write(pki / AUTHORITY, authority)
        key = private_key(pki / KEY)
        transport = HttpTransport(invitation.url, ca_pem=authority, token=invitation.token)
        client = Client(transport, user_agent=_AGENT)
        try:
            certificate = await obtain(client, clock, CLIENT, key, node)
        finally:
            await client.close()
    except Unreachable as error:
        raise ServerNotReached(f"cannot reach the server: {error}") from error
    except CertificateDenied as error:
        raise JoinFailure(str(error)) from error
    except StatusError as error:
        raise JoinFailure(_explanation(error)) from error
    await _check_alone(invitation.url, pki, certificate, node)
    (pki / SERVING).unlink(missing_ok=True)
    atomic.write(pki / CERTIFICATE, certificate)
    node_record.write_server(directory, invitation.url)
    log.info("joined node=%s server=%s", node, invitation.url)


async def _check_alone(url: str, pki: Path, certificate: bytes, node: str) -> None:
    """Check that no other agent runs as this node, for instance one of another user of this
    machine: two agents would run all pods of the node twice."""
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
        # Usually the node does not exist. Any other failure shows when the agent starts.
        return
    finally:
        await client.close()
    if (where := _endpoint(known)) and await _answers(*where):
        raise JoinFailure(
            f'the cluster has a node "{node}" already, and its agent answers at'
            f" {where[0]}:{where[1]}: choose another name with --node-name"
        )


def _endpoint(node: Node) -> tuple[str, int] | None:
    """Return the address of a node's agent from its status; None if it has none."""
    port = node.status.daemonEndpoints.kubeletEndpoint.Port
    hosts = [each.address for each in node.status.addresses if each.type == "InternalIP"]
    return (hosts[0], port) if hosts and port else None


async def _answers(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


def _explanation(error: StatusError) -> str:
    if error.code == 401:
        return (
            "the token is unknown or has expired: create a new one with 'kedge token create"
            " --print-join-command' on the server's machine"
        )
    return f"the server refused the request: {error.message}"


async def cluster_authority(invitation: Invitation) -> bytes:
    """Return the certificate of the cluster's authority, given by the invitation or verified by its
    hash."""
    if invitation.ca_pem:
        return invitation.ca_pem
    if not invitation.ca_hash:
        return await _from_trusted_server(invitation.url)
    # The server is not verified: the hash decides about the certificate that it returns.
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname = False
    unverified.verify_mode = ssl.CERT_NONE
    authority = await _from_cluster_info(invitation.url, unverified, invitation.token)
    # All certificates, since all of them will be trusted.
    if not {key_hash(each) for each in blocks(authority)} <= {invitation.ca_hash}:
        raise JoinFailure(
            f"the server at {invitation.url} does not belong to the cluster with the authority"
            f" {invitation.ca_hash}: its authority is {key_hash(authority)}"
        )
    return authority


async def _from_trusted_server(url: str) -> bytes:
    try:
        return await _from_cluster_info(url, ssl.create_default_context())
    except Unreachable as error:
        if not isinstance(error.__cause__, ssl.SSLCertVerificationError):
            raise
        raise JoinFailure(
            f"the certificate of {url} cannot be verified: pass --ca-cert-hash, which 'kedge token"
            " create --print-join-command' prints on the server's machine, or --ca-cert"
        ) from error


async def _from_cluster_info(url: str, tls: ssl.SSLContext, token: str = "") -> bytes:
    """Return the authority in the public config map cluster-info. A signature of the token must be
    right; clusters whose token is not for signing have none."""
    client = Client(HttpTransport(url, tls=tls), user_agent=_AGENT)
    try:
        reply = await client.fetch(_CLUSTER_INFO, {})
    finally:
        await client.close()
    if reply.status == 403:
        raise JoinFailure(
            f"{urlsplit(url).netloc} does not let machines join: no valid bootstrap token exists."
            " Create one with 'kedge token create --print-join-command' on the server's machine"
        )
    if reply.status != 200:
        raise JoinFailure(
            f"{urlsplit(url).netloc} does not serve cluster-info (status {reply.status}):"
            " pass the authority with --ca-cert"
        )
    try:
        data = json.loads(reply.body)["data"]
        content = data["kubeconfig"]
        authority = _authority(content)
        key_hash(authority)
    except (ValueError, KeyError, TypeError) as error:
        raise JoinFailure(
            f"{urlsplit(url).netloc} serves an invalid cluster-info: {error}"
        ) from error
    token_id, _, secret = token.partition(".")
    signed = data.get(f"jws-kubeconfig-{token_id}")
    if token and signed is not None and signed != signature(content, token_id, secret):
        raise JoinFailure(
            f"{urlsplit(url).netloc} serves a cluster-info that was not signed with this token: it"
            " belongs to another cluster, the token is wrong, or the server has just moved. Try"
            " again in a few seconds, then create another token"
        )
    return authority


def _authority(kubeconfig: str) -> bytes:
    from kedge.machinery import yaml_text  # Only joining needs it, and its import is slow.

    content: Any = yaml_text.read(kubeconfig)
    return base64.b64decode(content["clusters"][0]["cluster"]["certificate-authority-data"])
