"""`kedge run NAME --image=IMAGE`: the flags of a pod, beside those of a throw-away cluster.

`--image` decides: a throw-away cluster has no such flag. `--port` belongs to both, as the port of
the server or of the container.
"""

from argparse import ArgumentParser, Namespace
from typing import Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.failure import Failure
from kedge.cli.objects import client_flags

_OWN: Final = (
    "image",
    "command_line",
    "env",
    "labels",
    "annotations",
    "pod_restart",
    "image_pull_policy",
    "stdin",
    "tty",
    "attach",
    "rm",
    "quiet",
    "namespace",
    "context",
    "kubeconfig",
    "output",
)
"""The attributes of flags that only a pod has."""
_SHARED: Final = ("command", "line", "pod_name", "port", "config", "wait", "dry_run")


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of a pod, as a group of their own in the help."""
    parser.add_argument(
        "pod_name", nargs="?", default="", metavar="NAME", help="with --image: name of the pod"
    )
    group = parser.add_argument_group("flags of a pod (kedge run NAME --image=IMAGE)")
    group.add_argument("--image", default="", metavar="IMAGE", help="image of the container")
    group.add_argument(
        "--command",
        dest="command_line",
        action="store_true",
        help="what follows -- replaces the command of the image, not only its arguments",
    )
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of the container; may be repeated",
    )
    group.add_argument(
        "-l", "--labels", default="", metavar="KEY=VALUE,...", help="labels (default: run=NAME)"
    )
    group.add_argument(
        "--annotations",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an annotation; may be repeated",
    )
    group.add_argument(
        "--restart",
        dest="pod_restart",
        choices=("Always", "OnFailure", "Never"),
        help="the restart policy of the pod (default: Always)",
    )
    group.add_argument(
        "--image-pull-policy",
        choices=("Always", "IfNotPresent", "Never"),
        default="",
        help="when the image is pulled",
    )
    group.add_argument("-i", "--stdin", action="store_true", help="pass standard input on")
    group.add_argument("-t", "--tty", action="store_true", help="give the container a terminal")
    group.add_argument(
        "--attach", action="store_true", help="show the output until the container ends"
    )
    group.add_argument("--rm", action="store_true", help="delete the pod at the end")
    group.add_argument("-q", "--quiet", action="store_true", help="print only the output")
    client_flags.add_cluster(group)  # type: ignore[arg-type]
    client_flags.add_dry_run(group)  # type: ignore[arg-type]
    client_flags.add_written(group)  # type: ignore[arg-type]


def run(flags: Namespace) -> int:
    """Run a pod."""
    from kedge.cli.objects.connection import visit
    from kedge.cli.pods.run.pod import PodOptions
    from kedge.cli.pods.run.running import RunOptions, run

    _check(flags)
    pod = PodOptions(
        name=flags.pod_name,
        image=flags.image,
        arguments=flags.line,
        is_command=flags.command_line,
        environment=flags.env,
        labels=flags.labels,
        annotations=flags.annotations,
        port=flags.port or 0,
        restart=flags.pod_restart or "Always",
        pull_policy=flags.image_pull_policy,
        stdin=flags.stdin,
        tty=flags.tty,
    )
    asked = RunOptions(
        pod,
        attach=flags.attach or flags.stdin or flags.tty or flags.rm,
        remove=flags.rm,
        quiet=flags.quiet,
        dry_run=flags.dry_run == "server",
        output=flags.output,
    )
    return visit(client_config(Settings(flags)), lambda there: run(there, asked))


def _check(flags: Namespace) -> None:
    if not flags.pod_name:
        raise Failure("NAME is required: name the pod, as in 'kedge run web --image=IMAGE'")
    for name, value in vars(flags).items():
        if name not in (*_OWN, *_SHARED) and value is not None:
            flag = name.replace("_", "-")
            raise Failure(
                f"--{flag} is a flag of a throw-away cluster, and with --image the pod runs in the"
                f" cluster of the kubeconfig: leave out --{flag} or --image"
            )
    if flags.rm and (flags.pod_restart or "Always") == "Always" and not (flags.stdin or flags.tty):
        raise Failure(
            "--rm should only be used for attached containers: give -i, -t, or --restart Never"
        )


def check_unused(flags: Namespace) -> None:
    """Refuse flags of a pod without --image."""
    if flags.pod_name:
        raise Failure(
            f"'kedge run {flags.pod_name}' needs --image to run a pod; to run the command"
            f" {flags.pod_name} with a throw-away cluster, write 'kedge run -- {flags.pod_name}'"
        )
    for name in _OWN:
        if getattr(flags, name):
            flag = {"command_line": "command", "pod_restart": "restart"}.get(name, name)
            raise Failure(f"--{flag.replace('_', '-')} is a flag of a pod: give NAME and --image")
