"""Parsers of the values of settings; an ArgumentTypeError says what is wrong with a text."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kedge.machinery.quantity import Quantity


def cluster_name(value: str) -> str:
    """Return a name that can be a directory, a context and a DNS label."""
    # Imported here because reading names.py takes longer than printing the help.
    from kedge.machinery.names import dns_label

    if problems := dns_label(value):
        raise argparse.ArgumentTypeError(f'"{value}" is no name for a cluster: {problems[0]}')
    return value


def node_name(value: str) -> str:
    from kedge.machinery.names import dns_subdomain

    if problems := dns_subdomain(value):
        raise argparse.ArgumentTypeError(f'"{value}" is no name for a node: {problems[0]}')
    return value


def on_or_off(value: str) -> bool:
    if value not in ("on", "off"):
        raise argparse.ArgumentTypeError(f'"{value}" is neither on nor off')
    return value == "on"


def pairs(value: str) -> dict[str, str]:
    """Return the pairs of NAME=VALUE,..."""
    found = {}
    for item in items(value):
        key, equals, rest = item.partition("=")
        if not (key and equals):
            raise argparse.ArgumentTypeError(f'"{item}" is not NAME=VALUE')
        found[key] = rest
    return found


def nodes(value: str) -> dict[str, str]:
    """Return the addresses of nodes by name."""
    return {node_name(name): address for name, address in pairs(value).items()}


def labels(value: str) -> dict[str, str]:
    from kedge.machinery.names import label_value, qualified_name

    found = pairs(value)
    for key, text in found.items():
        if problems := (qualified_name(key) or label_value(text)):
            raise argparse.ArgumentTypeError(f'"{key}={text}" is no label: {problems[0]}')
    return found


def label_patterns(value: str) -> tuple[str, ...]:
    """Return keys of labels, in which stars stand for any text."""
    from kedge.machinery.names import qualified_name

    found = tuple(key.strip() for key in value.split(",") if key.strip())
    for key in found:
        if problems := qualified_name(key.replace("*", "x")):
            raise argparse.ArgumentTypeError(f'"{key}" is no label\'s key: {problems[0]}')
    return found


def amounts(value: str) -> "dict[str, Quantity]":
    from kedge.machinery.quantity import Quantity

    found = {}
    for name, text in pairs(value).items():
        try:
            found[name] = Quantity.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f'"{name}={text}" is no amount: {error}') from error
    return found


def server_url(value: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(value)
        known = parts.scheme == "https" and parts.hostname and (parts.port or 443)
    except ValueError:
        known = False
    if not known:
        raise argparse.ArgumentTypeError(f'"{value}" is no server: give https://HOST:PORT')
    return value.rstrip("/")


def server_urls(value: str) -> str:
    """Return the URLs of one or several servers, separated by commas."""
    return ",".join(map(server_url, items(value))) or server_url(value)


def container_runtime(value: str) -> str:
    path = value.removeprefix("cri://")
    if value != "kedge" and not (value.startswith("cri:///") and len(path) > 1):
        raise argparse.ArgumentTypeError(
            f'"{value}" is no runtime: give kedge, or the socket of one as'
            " cri:///run/containerd/containerd.sock"
        )
    return value


def bootstrap_token(value: str) -> str:
    """Return the token; error messages do not quote it, because it is a secret."""
    import re

    if not re.fullmatch("[a-z0-9]{6}[.][a-z0-9]{16}", value):
        raise argparse.ArgumentTypeError(
            "that is no token: it has six characters of a-z and 0-9, a dot, and sixteen more"
        )
    return value


def key_digest(value: str) -> str:
    import re

    if not re.fullmatch("sha256:[0-9a-f]{64}", value.lower()):
        raise argparse.ArgumentTypeError(
            f'"{value}" is no digest of a key: give sha256: and 64 hexadecimal digits'
        )
    return value.lower()


def image_rule(value: str) -> str:
    pattern, equals, image = value.partition("=")
    if not (pattern and equals and image):
        raise argparse.ArgumentTypeError(f'"{value}" is not PATTERN=IMAGE')
    return value


def device_count(value: str) -> dict[str, int]:
    """Return the counts of NAME=N,..."""
    from kedge.api.core_v1.resource_names import is_extended

    found = {}
    for name, number in pairs(value).items():
        if not is_extended(name):
            raise argparse.ArgumentTypeError(
                f'"{name}" is no name for devices: give one such as example.com/gadget'
            )
        found[name] = count(number)
    return found


def port_number(value: str) -> int:
    if not value.isascii() or not value.isdigit() or int(value) > 65535:
        raise argparse.ArgumentTypeError(f'"{value}" is not a port: give a number from 0 to 65535')
    return int(value)


def port_range(value: str) -> range:
    """Return the ports from FROM to TO, both included, or FROM+N as kube-apiserver has it."""
    first, separator, last = value.replace("+", "-", 1).partition("-")
    numbers = [text for text in (first, last) if text.isascii() and text.isdigit()]
    if separator and len(numbers) == 2:
        start = int(first)
        end = int(last) + (start if "+" in value else 0)
        if 0 < start <= end <= 65535:
            return range(start, end + 1)
    raise argparse.ArgumentTypeError(
        f'"{value}" is not a range of ports: give the first and the last, such as 30000-32767'
    )


def network(value: str) -> str:
    """Return an IPv4 network in its canonical form."""
    from ipaddress import IPv4Network

    try:
        return str(IPv4Network(value))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f'"{value}" is not an IPv4 network: {error}. Give one such as 10.97.0.0/24'
        ) from None


def directory(value: str) -> Path:
    if not value:
        raise argparse.ArgumentTypeError("the name of the directory is empty")
    return Path(os.path.abspath(os.path.expanduser(value)))


def file(value: str) -> Path | str:
    """Return the absolute path; empty for none, which beats a file that the environment names."""
    if value == "-":
        raise argparse.ArgumentTypeError('"-" is not a file: give the name of one')
    return Path(os.path.abspath(os.path.expanduser(value))) if value else ""


def count(value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise argparse.ArgumentTypeError(f'"{value}" is not a number from 0 on')
    return int(value)


MOST_SERVERS: Final = 9


def servers(value: str) -> int:
    """Return how many servers share one address."""
    number = count(value)
    if not 1 <= number <= MOST_SERVERS:
        raise argparse.ArgumentTypeError(f'"{value}" is not a number from 1 to {MOST_SERVERS}')
    return number


MOST_SIMULATED_NODES = 10_000


def simulated_nodes(value: str) -> int:
    number = count(value)
    if number > MOST_SIMULATED_NODES:
        raise argparse.ArgumentTypeError(f"a cluster has at most {MOST_SIMULATED_NODES} of them")
    return number


def items(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def seconds(value: str) -> float:
    """Return the seconds of a positive duration such as `30s` or `1m`; a bare number is seconds."""
    from kedge.machinery.durations import SECOND, parse_duration

    try:
        amount = parse_duration(f"{value}s" if value.replace(".", "", 1).isdigit() else value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if amount <= 0:
        raise argparse.ArgumentTypeError(f'"{value}" is not a positive duration')
    return amount / SECOND


def resolution_seconds(value: str) -> int:
    """Return whole seconds, at least ten: nodes measure every ten seconds."""
    amount = seconds(value)
    if amount < 10 or amount % 1 or amount > 86400:
        raise argparse.ArgumentTypeError(f'"{value}" is not from 10s to 24h, in whole seconds')
    return int(amount)


def one_of(choices: Sequence[str], complaint: str) -> Callable[[str], str]:
    """Return a parser of texts that can be listed; `complaint` precedes the list."""

    def parse(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(f'"{value}" is {complaint}')
        return value

    return parse


LOCAL_STORES: Final = ("sqlite", "memory")
ETCD: Final = "etcd://"
POSTGRESQL: Final = "postgresql://"
POSTGRESQL_FORM: Final = f"{POSTGRESQL}USER@HOST:PORT,.../DATABASE[/SCHEMA]"


def store(value: str) -> str:
    """Return the name of a store of this machine, or the address of another as it was given."""
    if value in LOCAL_STORES:
        return value
    if value.startswith(POSTGRESQL):
        # Few use it, and every command loads this module.
        from kedge.settings.postgresql import postgresql_address

        postgresql_address(value)
        return value
    if not value.startswith(ETCD):
        raise argparse.ArgumentTypeError(
            f'"{value}" is not a store: choose {", ".join(LOCAL_STORES)}, {ETCD}HOST:PORT,... or'
            f" {POSTGRESQL_FORM}"
        )
    if "@" in value:
        # Not repeated in the message: it has a password.
        raise argparse.ArgumentTypeError(
            "the address of etcd must not have a user and a password: all users of the machine see"
            " the arguments of processes. Name a file with them: --etcd-credentials-file"
        )
    for endpoint in etcd_endpoints(value):
        host, separator, port = endpoint.rpartition(":")
        if not separator or not host or "/" in endpoint:
            raise argparse.ArgumentTypeError(
                f'"{endpoint}" is not a member of etcd: write HOST:PORT, such as 127.0.0.1:2379'
            )
        port_number(port)
    return value


def etcd_endpoints(value: str) -> tuple[str, ...]:
    """Return the members in the address of an etcd; none for another store."""
    return tuple(value.removeprefix(ETCD).split(",")) if value.startswith(ETCD) else ()


def is_elsewhere(value: str) -> bool:
    """Return whether a store is another server, and not of this machine."""
    return value.startswith((ETCD, POSTGRESQL))


def whole_number(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"invalid int value: '{value}'") from None


def truth(value: str) -> bool:
    if value.lower() not in ("true", "1", "yes", "false", "0", "no", ""):
        raise argparse.ArgumentTypeError(f'"{value}" is neither true nor false')
    return value.lower() in ("true", "1", "yes")
