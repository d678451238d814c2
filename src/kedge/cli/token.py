"""`kedge token`: bootstrap tokens, with which further machines can join a cluster."""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kedge.cli import flags
from kedge.cli.failure import Failure
from kedge.settings import parse

if TYPE_CHECKING:
    from datetime import datetime

    from kedge.api.core_v1.secret import Secret
    from kedge.cli.cluster.registry import ClusterLocation
    from kedge.client.client import Client

DESCRIPTION: Final = """\
Create, list and delete bootstrap tokens. A token makes its user a member of system:bootstrappers,
and that group can request the certificate of any node: keep it secret. 'kedge token create
--print-join-command' prints the command with which a machine joins.

A token has the form "ID.SECRET". The ID is enough to delete it, and only the ID is safe to show."""
EXAMPLES: Final = """\
  # A token that is valid for a day
  kedge token create

  # A token, and the command to run on another machine
  kedge token create --print-join-command

  # One for the next ten minutes
  kedge token create --ttl 10m --description "rack 7"

  kedge token list
  kedge token delete abcdef"""

USAGES: Final = ("authentication", "signing")
ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
TYPE: Final = "bootstrap.kubernetes.io/token"
NAMESPACE: Final = "kube-system"
_OPEN_ATTEMPTS: Final = 100
_OPEN_PAUSE: Final = 0.05
_PREFIX: Final = "bootstrap-token-"
_USAGE: Final = "usage-bootstrap-"


class NewToken(NamedTuple):
    """The lifetime and the permitted uses of a new token."""

    seconds: float
    """How long; 0 for ever."""
    usages: tuple[str, ...]
    groups: tuple[str, ...]
    description: str


def add_flags(parser: ArgumentParser) -> None:
    below = parser.add_subparsers(dest="deed", metavar="create|list|delete", required=True)
    create = below.add_parser("create", help="create a token and print it", allow_abbrev=False)
    flags.add_which(create)
    create.add_argument(
        "--ttl",
        type=lifetime,
        default=86400.0,
        metavar="DURATION",
        help="lifetime, such as 30m or 24h; 0 for ever (default: 24h)",
    )
    create.add_argument(
        "--usages",
        type=usages,
        default=("authentication", "signing"),
        metavar="LIST",
        help=f"what it can be used for, of {', '.join(USAGES)} (default: authentication, signing)",
    )
    create.add_argument(
        "--groups",
        type=groups,
        default=(),
        metavar="LIST",
        help="further groups of its user, each beginning with system:bootstrappers:",
    )
    create.add_argument("--description", default="", metavar="TEXT", help="purpose of the token")
    create.add_argument(
        "--print-join-command",
        action="store_true",
        help="print the command with which another machine joins, instead of the token alone",
    )
    listing = below.add_parser("list", help="list the tokens", allow_abbrev=False)
    flags.add_which(listing)
    flags.add_output(listing)
    delete = below.add_parser("delete", help="delete tokens", allow_abbrev=False)
    flags.add_which(delete)
    delete.add_argument("tokens", nargs="+", type=token_id, metavar="ID", help="ID, or ID.SECRET")


def lifetime(value: str) -> float:
    return 0.0 if value == "0" else parse.seconds(value)


def usages(value: str) -> tuple[str, ...]:
    asked = parse.items(value) or (value,)
    for usage in asked:
        if usage not in USAGES:
            raise argparse.ArgumentTypeError(
                f'"{usage}" is no usage of a token: choose of {", ".join(USAGES)}'
            )
    return asked


def groups(value: str) -> tuple[str, ...]:
    import re

    asked = parse.items(value)
    for group in asked:
        if not re.fullmatch("system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", group):
            raise argparse.ArgumentTypeError(
                f'"{group}" is no group for a token: it must begin with system:bootstrappers: and'
                " go on with a-z, 0-9, : and -"
            )
    return asked


def token_id(value: str) -> str:
    """The id in an id or a whole token; what is wrong with a token is said without quoting it."""
    id_ = value.partition(".")[0]
    if len(id_) != 6 or not set(id_) <= set(ALPHABET):
        raise argparse.ArgumentTypeError("that is no token: its ID is six of a-z and 0-9")
    return id_


def run(flags: Namespace) -> int:
    from kedge.cli.config.cluster import where
    from kedge.cli.config.settings import Settings

    cluster = where(Settings(flags))
    if flags.deed == "create":
        new = NewToken(flags.ttl, flags.usages, flags.groups, flags.description)
        return create(cluster, new, join_command=flags.print_join_command)
    if flags.deed == "list":
        return list_tokens(cluster, flags.output)
    return delete(cluster, flags.tokens)


def create(where: "ClusterLocation", new: NewToken, *, join_command: bool = False) -> int:
    """Make a token and print it, or the command that uses it."""
    import secrets

    from kedge.api.core_v1.secret import RESOURCE
    from kedge.machinery.clock import SystemClock

    id_, code = ("".join(secrets.choice(ALPHABET) for _ in range(length)) for length in (6, 16))
    kept = secret_of(id_, code, new, SystemClock().now())

    printed = f"{id_}.{code}"

    async def make(client: "Client") -> None:
        nonlocal printed
        await client.create(RESOURCE, kept)
        await _wait_until_open(client)
        if join_command:
            printed = command(await _cluster_info(client), printed)

    _ask(where, make)
    print(printed)
    return 0


def command(info: dict[str, str], token: str) -> str:
    """Return the join command for another machine; says so if it would not work there."""
    import base64
    import ipaddress
    import sys
    from contextlib import suppress
    from urllib.parse import urlsplit

    from kedge.machinery.certificates import key_hash

    url = info["server"]
    with suppress(ValueError):
        if ipaddress.ip_address(urlsplit(url).hostname or "").is_loopback:
            print(
                f"warning: the server listens at {url}, where no other machine can reach it:"
                " 'kedge down', then 'kedge up --host 0.0.0.0'",
                file=sys.stderr,
            )
    digest = key_hash(base64.b64decode(info["certificate-authority-data"]))
    return f"kedge node --server {url} --token {token} --ca-cert-hash {digest}"


async def _wait_until_open(client: "Client") -> None:
    """Wait until `cluster-info` is readable without a credential, so that a machine can use a
    first token immediately."""
    from kedge.api.rbac_v1.role_binding import RESOURCE
    from kedge.machinery.clock import SystemClock
    from kedge.machinery.errors import StatusError

    clock = SystemClock()
    for _ in range(_OPEN_ATTEMPTS):
        try:
            await client.get(RESOURCE, "kubeadm:bootstrap-signer-clusterinfo", "kube-public")
        except StatusError as error:
            if error.code != 404:
                raise
            await clock.sleep(_OPEN_PAUSE)
        else:
            return


async def _cluster_info(client: "Client") -> dict[str, str]:
    """Return the public information about the cluster: its address and its authority."""
    from kedge.api.core_v1.config_map import RESOURCE
    from kedge.machinery import yaml_text

    found = await client.get(RESOURCE, "cluster-info", "kube-public")
    info: dict[str, str] = yaml_text.read(found.data["kubeconfig"])["clusters"][0]["cluster"]
    return info


def list_tokens(where: "ClusterLocation", output: str | None) -> int:
    """Print all tokens, those included that can no longer be used."""
    from kedge.api.core_v1.secret import RESOURCE
    from kedge.cli.output import printers
    from kedge.machinery.clock import SystemClock

    found: list[Secret] = []

    async def fetch(client: "Client") -> None:
        listing = await client.list(RESOURCE, NAMESPACE, fields=f"type={TYPE}")
        found.extend(listing.items)

    _ask(where, fetch)
    now = SystemClock().now()
    tokens = [facts(kept, now) for kept in found]
    if output:
        print(printers.document({"items": tokens}, output))
    elif tokens:
        heads = ("TOKEN", "TTL", "EXPIRES", "USAGES", "DESCRIPTION", "EXTRA GROUPS")
        rows = [tuple(value or "<none>" for value in token.values()) for token in tokens]
        print(printers.table([heads, *rows]))
    else:
        print("There are no tokens. Make one with: kedge token create")
    return 0


def delete(where: "ClusterLocation", ids: list[str]) -> int:
    """Delete tokens by their ids."""
    from kedge.api.core_v1.secret import RESOURCE
    from kedge.machinery.errors import StatusError

    async def remove(client: "Client") -> None:
        for id_ in ids:
            try:
                await client.delete(RESOURCE, f"{_PREFIX}{id_}", NAMESPACE)
            except StatusError as error:
                if error.code != 404:
                    raise
                raise Failure(
                    f"there is no token \"{id_}\": 'kedge token list' shows those that are"
                ) from error
            print(f'token "{id_}" deleted')

    _ask(where, remove)
    return 0


def secret_of(id_: str, code: str, new: NewToken, now: "datetime") -> "Secret":
    """The Secret that makes a token known to the cluster."""
    from datetime import timedelta

    from kedge.api.core_v1.secret import Secret, encoded
    from kedge.api.model import ObjectMeta
    from kedge.machinery.durations import format_time

    values = {"token-id": id_, "token-secret": code}
    values |= {f"{_USAGE}{usage}": "true" for usage in new.usages}
    if new.seconds:
        values["expiration"] = format_time(now + timedelta(seconds=new.seconds))
    if new.groups:
        values["auth-extra-groups"] = ",".join(new.groups)
    if new.description:
        values["description"] = new.description
    meta = ObjectMeta(name=f"{_PREFIX}{id_}", namespace=NAMESPACE)
    data = {key: encoded(value) for key, value in values.items()}
    return Secret(metadata=meta, type=TYPE, data=data)


def facts(kept: "Secret", now: "datetime") -> dict[str, str]:
    """Return the columns of a token in lists."""
    import base64

    values = {
        key: base64.b64decode(value).decode(errors="replace") for key, value in kept.data.items()
    }
    usages = sorted(
        key.removeprefix(_USAGE)
        for key, value in values.items()
        if key.startswith(_USAGE) and value == "true"
    )
    expires = values.get("expiration", "")
    return {
        "token": f"{values.get('token-id', '')}.{values.get('token-secret', '')}",
        "ttl": time_left(expires, now),
        "expires": expires or "<never>",
        "usages": ",".join(usages),
        "description": values.get("description", ""),
        "extraGroups": values.get("auth-extra-groups", ""),
    }


def time_left(expires: str, now: "datetime") -> str:
    from kedge.machinery.durations import human_age, parse_time

    if not expires:
        return "<forever>"
    try:
        left = (parse_time(expires) - now).total_seconds()
    except ValueError:
        return "<invalid>"
    return human_age(int(left)) if left > 0 else "<expired>"


def _ask(where: "ClusterLocation", deed: Callable[["Client"], Awaitable[None]]) -> None:
    """Do something through the API of the cluster, which must be running."""
    import asyncio

    from kedge.client.transport import Unreachable
    from kedge.machinery.errors import StatusError

    async def ask() -> None:
        client = _client(where)
        try:
            await deed(client)
        finally:
            await client.close()

    try:
        asyncio.run(ask())
    except Unreachable as error:
        raise Failure(f"the cluster {where} does not answer: {error}") from error
    except StatusError as error:
        raise Failure(f"the cluster {where} refused: {error.message}") from error


def _client(where: "ClusterLocation") -> "Client":
    """The administrator of the cluster."""
    from kedge.cli.cluster import registry, server_parts, state
    from kedge.client.client import Client
    from kedge.client.http import HttpTransport

    found = registry.find(where)
    if found is None:
        raise registry.absent(where)
    server = state.read_server(found.directory)
    if server is None or server_parts.any_running(found.directory) is None:
        raise Failure(f"the cluster {where} is not running: start it with 'kedge up'")
    ca_pem = (found.directory / "pki" / "ca.crt").read_bytes()
    token = (found.directory / "token").read_text(encoding="ascii").strip()
    return Client(HttpTransport(server.url, ca_pem=ca_pem, token=token), user_agent="kedge")
