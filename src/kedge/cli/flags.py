"""Flags that several commands share, and how their values are read.

No flag has a default here: what was not given is looked for in the environment by `kedge.config`.
"""

import argparse
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kedge.controllers import names
from kedge.metrics.windows import DAY, SHORTEST, TICK_SECONDS, WINDOWS

if TYPE_CHECKING:
    from kedge.apiserver.config import StoreKind
    from kedge.cli.up import RestartPolicy
    from kedge.machinery.quantity import Quantity

STORES: Final[tuple["StoreKind", ...]] = ("sqlite", "memory")
RESTART_POLICIES: Final[tuple["RestartPolicy", ...]] = ("always", "never")
OUTPUTS: Final = ("json", "yaml")


def add_which(parser: ArgumentParser) -> None:
    """Which cluster the command is about."""
    parser.add_argument(
        "--name",
        type=cluster_name,
        metavar="NAME",
        help="name of the cluster; its context is kedge-NAME (default: $KEDGE_NAME, else default)",
    )
    parser.add_argument(
        "--state",
        type=directory,
        metavar="DIR",
        help="directory of the cluster (default: $KEDGE_STATE, else NAME under"
        " $XDG_STATE_HOME/kedge, for root under /var/lib/kedge)",
    )


def add_server(parser: ArgumentParser, *, port: str, admission: str) -> None:
    """What a server is told; `port` and `admission` say what holds if they are not."""
    parser.add_argument(
        "--host",
        metavar="ADDRESS",
        help="address to listen on (default: $KEDGE_HOST, else 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="PORT",
        help=f"port to listen on, 0 for any free one (default: $KEDGE_PORT, else {port})",
    )
    parser.add_argument(
        "--cert-hosts",
        type=items,
        metavar="LIST",
        help="further host names and addresses for the serving certificate, comma-separated"
        " (default: $KEDGE_CERT_HOSTS)",
    )
    parser.add_argument(
        "--store",
        choices=STORES,
        help="where objects are kept: in a SQLite file, or in memory and lost with the server"
        " (default: $KEDGE_STORE, else sqlite)",
    )
    add_admission(parser, admission)
    parser.add_argument(
        "--upstream-only",
        action=argparse.BooleanOptionalAction,
        help="refuse kedge's extensions as Kubernetes would (default: $KEDGE_UPSTREAM_ONLY,"
        " else accept them with a warning)",
    )
    parser.add_argument(
        "--scrape-kubelets",
        action=argparse.BooleanOptionalAction,
        help="ask nodes that do not report by themselves what they use, as --metrics-resolution"
        " says or every 15s (default: $KEDGE_SCRAPE_KUBELETS, else do not)",
    )
    add_kubelet_trust(parser)
    add_metrics_window(parser)
    parser.add_argument(
        "--scheduler-usage",
        type=on_or_off,
        metavar="on|off",
        help="whether what nodes and pods really use counts when a node is chosen; off compares"
        " requests only, as Kubernetes does (default: $KEDGE_SCHEDULER_USAGE, else on)",
    )
    parser.add_argument(
        "--controllers",
        type=items,
        metavar="LIST",
        help="the controllers to run, comma-separated: * for all, NAME for one, -NAME to leave"
        " one out, such as '*,-statefulset-controller' to delete an object that breaks it;"
        f" the names are {', '.join(names.ALL)} (default: $KEDGE_CONTROLLERS, else *)",
    )
    add_guards(parser)


def add_admission(parser: ArgumentParser, admission: str) -> None:
    """Which admission plugins are enforced; `admission` says which if nothing is told."""
    parser.add_argument(
        "--admission-control",
        "-admission_control",
        "--admission_control",
        dest="admission_control",
        type=items,
        metavar="LIST",
        help="the admission plugins to enforce, and no others, comma-separated"
        f" (default: $KEDGE_ADMISSION_CONTROL, else {admission})",
    )
    parser.add_argument(
        "--enable-admission-plugins",
        type=items,
        metavar="LIST",
        help="admission plugins to enforce beside those of the default"
        " (default: $KEDGE_ENABLE_ADMISSION_PLUGINS)",
    )
    parser.add_argument(
        "--disable-admission-plugins",
        type=items,
        metavar="LIST",
        help="admission plugins of the default not to enforce"
        " (default: $KEDGE_DISABLE_ADMISSION_PLUGINS)",
    )


def add_kubelet_trust(parser: ArgumentParser) -> None:
    """Which kubelets are believed when they are asked what they use."""
    parser.add_argument(
        "--kubelet-certificate-authority",
        type=file,
        metavar="FILE",
        help="who signs the certificates of kubelets that are asked what they use"
        " (default: $KEDGE_KUBELET_CERTIFICATE_AUTHORITY, else the cluster's authority)",
    )
    parser.add_argument(
        "--kubelet-insecure-tls",
        action=argparse.BooleanOptionalAction,
        help="believe whoever answers in place of such a kubelet"
        " (default: $KEDGE_KUBELET_INSECURE_TLS, else do not)",
    )


def add_metrics_window(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-window",
        choices=tuple(WINDOWS),
        help="the window that kubectl top and autoscalers see (default: $KEDGE_METRICS_WINDOW,"
        f" else {SHORTEST})",
    )


def add_guards(parser: ArgumentParser) -> None:
    """Who else is let in, how many at once, and whether it is written down."""
    parser.add_argument(
        "--token-auth-file",
        type=file,
        metavar="FILE",
        help='CSV file of further tokens, each line: token,user,uid,"group,group"'
        " (default: $KEDGE_TOKEN_AUTH_FILE, else none)",
    )
    parser.add_argument(
        "--audit-log-path",
        type=file,
        metavar="FILE",
        help="file in which every request leaves a line of JSON"
        " (default: $KEDGE_AUDIT_LOG_PATH, else none)",
    )
    parser.add_argument(
        "--max-requests-inflight",
        type=count,
        metavar="N",
        help="reads under way at once before more are sent away, 0 for no limit"
        " (default: $KEDGE_MAX_REQUESTS_INFLIGHT, else 400)",
    )
    parser.add_argument(
        "--max-mutating-requests-inflight",
        type=count,
        metavar="N",
        help="writes under way at once before more are sent away, 0 for no limit"
        " (default: $KEDGE_MAX_MUTATING_REQUESTS_INFLIGHT, else 200)",
    )
    parser.add_argument(
        "--node-monitor-grace-period",
        type=seconds,
        metavar="DURATION",
        help="how long a node may be silent before it is unreachable; nodes say something every"
        " 10s (default: $KEDGE_NODE_MONITOR_GRACE_PERIOD, else 50s)",
    )


def add_node(
    parser: ArgumentParser, *, address: str = "127.0.0.1", resolution: str = "10s"
) -> None:
    """What a node is told; `address` and `resolution` say what holds if they are not."""
    add_whereabouts(parser, address)
    add_images(parser)
    add_devices(parser)
    add_room(parser)
    parser.add_argument(
        "--metrics-resolution",
        type=resolution_seconds,
        metavar="DURATION",
        help="how often nodes report what they and their pods use, from 10s on; more often while"
        f" somebody watches (default: $KEDGE_METRICS_RESOLUTION, else {resolution})",
    )


def add_whereabouts(parser: ArgumentParser, address: str) -> None:
    """Where a node is, and what it says of itself."""
    parser.add_argument(
        "--node-address",
        metavar="ADDRESS",
        help=f"address at which nodes listen (default: $KEDGE_NODE_ADDRESS, else {address})",
    )
    parser.add_argument(
        "--node-port",
        type=port_number,
        metavar="PORT",
        help="port at which a node listens, 0 for any free one (default: $KEDGE_NODE_PORT, else 0)",
    )
    parser.add_argument(
        "--node-labels",
        type=labels,
        metavar="KEY=VALUE,...",
        help="labels that nodes give themselves (default: $KEDGE_NODE_LABELS)",
    )
    parser.add_argument(
        "--expose-node-labels",
        type=label_patterns,
        metavar="KEY,...",
        help="labels of nodes that pods may be told of besides zone and region, such as"
        " example.com/rack or example.com/* (default: $KEDGE_EXPOSE_NODE_LABELS)",
    )


def add_images(parser: ArgumentParser) -> None:
    """Which images a node takes, and what of the machine they show."""
    parser.add_argument(
        "--image-map",
        action="append",
        type=image_rule,
        metavar="PATTERN=IMAGE",
        help="which image to take for names that match, such as 'busybox:*=host'; may be repeated,"
        " the first match counts (default: $KEDGE_IMAGE_MAP, one rule)",
    )
    parser.add_argument(
        "--hide",
        action="append",
        type=Path,
        metavar="PATH",
        help="what containers of the image host must not see of the machine, besides kedge's own"
        " directories and kubeconfigs; may be repeated (default: $KEDGE_HIDE, one path)",
    )
    parser.add_argument(
        "--host-image-show",
        action="append",
        type=Path,
        metavar="PATH",
        help="show containers of the image host this path, although it is among the credentials and"
        " home directories that 'kedge image list host' lists; may be repeated"
        " (default: $KEDGE_HOST_IMAGE_SHOW, one path)",
    )
    parser.add_argument(
        "--host-image",
        action=argparse.BooleanOptionalAction,
        help="whether pods may use the image host (default: $KEDGE_HOST_IMAGE, else yes)",
    )


def add_devices(parser: ArgumentParser) -> None:
    """Which devices a node has."""
    parser.add_argument(
        "--device-plugin-dir",
        type=directory,
        metavar="DIR",
        help="where device plugins register with the first node (default:"
        " $KEDGE_DEVICE_PLUGIN_DIR, else for root /var/lib/kubelet/device-plugins if it is free,"
        " else a directory below --state)",
    )
    parser.add_argument(
        "--devices",
        action="append",
        type=device_count,
        metavar="NAME=N",
        help="devices that each node simulates, such as example.com/gadget=4; may be repeated"
        " (default: $KEDGE_DEVICES)",
    )


def add_room(parser: ArgumentParser) -> None:
    """How much of a node pods get."""
    parser.add_argument(
        "--reserved",
        type=amounts,
        metavar="NAME=AMOUNT,...",
        help="what is kept from pods, such as cpu=100m,memory=256Mi (default: $KEDGE_RESERVED,"
        " else nothing)",
    )
    parser.add_argument(
        "--max-pods",
        type=count,
        metavar="N",
        help="how many pods a node takes (default: $KEDGE_MAX_PODS, else 110)",
    )
    parser.add_argument(
        "--pod-max-pids",
        type=int,
        metavar="N",
        help="processes and threads that one pod may have, -1 for any number"
        " (default: $KEDGE_POD_MAX_PIDS, else 4096)",
    )


def add_kubeconfig(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig file to put the context into (default: the file that kubectl would"
        " change: $KUBECONFIG, else ~/.kube/config)",
    )


def add_output(parser: ArgumentParser) -> None:
    parser.add_argument("-o", "--output", choices=OUTPUTS, help="print JSON or YAML, for programs")


def cluster_name(value: str) -> str:
    """A name that can be a directory, a context and a DNS label; ValueError if it cannot."""
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


def on_or_off(value: str) -> str:
    if value not in ("on", "off"):
        raise argparse.ArgumentTypeError(f'"{value}" is neither on nor off')
    return value


def pairs(value: str) -> dict[str, str]:
    """NAME=VALUE, as often as there are commas."""
    found = {}
    for item in items(value):
        key, equals, rest = item.partition("=")
        if not (key and equals):
            raise argparse.ArgumentTypeError(f'"{item}" is not NAME=VALUE')
        found[key] = rest
    return found


def nodes(value: str) -> dict[str, str]:
    """Names of nodes with their addresses."""
    return {node_name(name): address for name, address in pairs(value).items()}


def labels(value: str) -> dict[str, str]:
    from kedge.machinery.names import label_value, qualified_name

    found = pairs(value)
    for key, text in found.items():
        if problems := (qualified_name(key) or label_value(text)):
            raise argparse.ArgumentTypeError(f'"{key}={text}" is no label: {problems[0]}')
    return found


def label_patterns(value: str) -> tuple[str, ...]:
    """Keys of labels, in which stars stand for any text."""
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


def bootstrap_token(value: str) -> str:
    """A whole token; what is wrong with it is said without quoting it."""
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
    """NAME=N, as often as there are commas."""
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


def directory(value: str) -> Path:
    if not value:
        raise argparse.ArgumentTypeError("the name of the directory is empty")
    return Path(os.path.abspath(os.path.expanduser(value)))


def file(value: str) -> str:
    """Where the file is; empty for none, which beats one that the environment names."""
    if value == "-":
        raise argparse.ArgumentTypeError('"-" is not a file: give the name of one')
    return os.path.abspath(os.path.expanduser(value)) if value else ""


def count(value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise argparse.ArgumentTypeError(f'"{value}" is not a number from 0 on')
    return int(value)


def items(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def seconds(value: str) -> float:
    """A positive duration such as `30s` or `1m`; a bare number counts seconds."""
    from kedge.machinery.durations import SECOND, parse_duration

    try:
        amount = parse_duration(f"{value}s" if value.replace(".", "", 1).isdigit() else value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if amount <= 0:
        raise argparse.ArgumentTypeError(f'"{value}" is not a positive duration')
    return amount / SECOND


def resolution_seconds(value: str) -> int:
    """Whole seconds, ten or more, which is how often nodes have anything new to report."""
    amount = seconds(value)
    if amount < TICK_SECONDS or amount % 1 or amount > DAY:
        raise argparse.ArgumentTypeError(f'"{value}" is not from 10s to 24h, in whole seconds')
    return int(amount)


def usage_window(value: str) -> str:
    if value not in WINDOWS:
        raise argparse.ArgumentTypeError(f'"{value}" is none of {", ".join(WINDOWS)}')
    return value


def store(value: str) -> "StoreKind":
    for known in STORES:
        if value == known:
            return known
    raise argparse.ArgumentTypeError(f'"{value}" is not a store: choose {" or ".join(STORES)}')


def restart_policy(value: str) -> "RestartPolicy":
    for known in RESTART_POLICIES:
        if value == known:
            return known
    choice = " or ".join(RESTART_POLICIES)
    raise argparse.ArgumentTypeError(f'"{value}" is not a policy: choose {choice}')


def truth(value: str) -> bool:
    if value.lower() not in ("true", "1", "yes", "false", "0", "no", ""):
        raise argparse.ArgumentTypeError(f'"{value}" is neither true nor false')
    return value.lower() in ("true", "1", "yes")
