"""The commands of `kedge`, in the groups of its help."""

import importlib
from argparse import ArgumentParser, Namespace
from typing import Final, NamedTuple, Protocol, cast


class CommandModule(Protocol):
    """The module of one command: its flags, its work and its view."""

    DESCRIPTION: str
    EXAMPLES: str

    def add_flags(self, parser: ArgumentParser) -> None:
        """Declare the command's flags."""
        ...

    def run(self, flags: Namespace) -> int:
        """Do the work; returns the exit code."""
        ...


class CliCommand(NamedTuple):
    """One command, in a module that is imported only if the command line names the command.

    The module imports the work in `run`, so that `--help` is fast: most of the time of a short
    command is spent on imports.
    """

    name: str
    module: str
    """Below kedge.cli."""
    help: str
    passes_words_on: bool = False
    """Whether all words after the command belong to another program."""

    def load(self) -> CommandModule:
        return cast(CommandModule, importlib.import_module(f"kedge.cli.{self.module}"))


class CommandGroup(NamedTuple):
    """Commands that the help shows together."""

    title: str
    commands: tuple[CliCommand, ...]


GROUPS: Final = (
    CommandGroup(
        "Clusters on this machine",
        (
            CliCommand("up", "cluster.up.command", "Start a cluster and point kubectl at it"),
            CliCommand("down", "cluster.down", "Stop a cluster and remove it from the kubeconfig"),
            CliCommand("status", "cluster.status", "Show whether a cluster runs, and where"),
            CliCommand("list", "cluster.list", "List the clusters on this machine"),
            CliCommand(
                "doctor", "doctor.command", "Show what this machine lacks, and how to mend it"
            ),
            CliCommand(
                "backup", "backup.backup", "Write the objects and keys of a cluster to a file"
            ),
            CliCommand("restore", "backup.restore", "Make a cluster of such a file"),
            CliCommand(
                "export", "backup.export_command", "Copy the objects of a cluster to etcd or YAML"
            ),
            CliCommand(
                "import", "backup.import_command", "Copy the objects in an etcd to a cluster"
            ),
            CliCommand(
                "support-bundle", "support.command", "Collect what helpers need, without secrets"
            ),
        ),
    ),
    CommandGroup(
        "Objects",
        (
            CliCommand("get", "objects.get.command", "Show objects of the cluster"),
            CliCommand(
                "describe", "objects.describe.command", "Describe objects of the cluster in detail"
            ),
            CliCommand("create", "objects.create", "Create objects from files"),
            CliCommand("apply", "objects.apply", "Create or update objects from files"),
            CliCommand("delete", "objects.delete.command", "Delete objects of the cluster"),
            CliCommand("edit", "objects.edit.command", "Change an object in an editor"),
            CliCommand("wait", "objects.wait.command", "Wait for a state of objects"),
            CliCommand("events", "objects.events", "Show what happened, the latest last"),
            CliCommand(
                "namespace", "objects.namespace.command", "Show or change the current namespace"
            ),
            CliCommand("explain", "explain.command", "Explain where limits or variables come from"),
        ),
    ),
    CommandGroup(
        "Pods and workloads",
        (
            CliCommand("logs", "pods.logs.command", "Show the logs of a container"),
            CliCommand("exec", "pods.exec.command", "Run a command in a container"),
            CliCommand("cp", "pods.cp.command", "Copy files into a container or out of it"),
            CliCommand("port-forward", "pods.port_forward.command", "Forward ports to a pod"),
            CliCommand("scale", "workloads.scale", "Change how many pods a workload has"),
            CliCommand(
                "rollout", "workloads.rollout.command", "Follow and change rollouts of workloads"
            ),
            CliCommand("open", "open", "Print the address of a Service, and open it in a browser"),
            CliCommand("why", "pods.why.command", "Explain why a pod is on its node, or on none"),
        ),
    ),
    CommandGroup(
        "Usage",
        (
            CliCommand("ui", "ui.command", "Open the dashboard in a browser, signed in"),
            CliCommand(
                "top", "usage.top.command", "Show the usage of nodes, pods and containers, live"
            ),
            CliCommand(
                "recommend",
                "usage.recommend.command",
                "Propose requests and limits from the measured usage",
            ),
            CliCommand(
                "simulate",
                "usage.simulate.command",
                "Compare ways to place pods, over recorded usage",
            ),
        ),
    ),
    CommandGroup(
        "Tests",
        (
            CliCommand("run", "cluster.run", "Run a command with a throw-away cluster, or a pod"),
            CliCommand("envtest", "envtest.command", "Print a directory for $KUBEBUILDER_ASSETS"),
            CliCommand(
                "faults", "faults.command", "Make requests fail on purpose, in a cluster for tests"
            ),
            CliCommand(
                "requests", "requests.command", "Show what clients of a cluster for tests asked for"
            ),
            CliCommand("clock", "clock.command", "Show and move the time of a cluster for tests"),
            CliCommand("device", "device", "Test a device plugin"),
        ),
    ),
    CommandGroup(
        "Images and volumes",
        (
            CliCommand("image", "image", "Load, list and remove images"),
            CliCommand(
                "volume", "volume.command", "List volumes, and show how much data they hold"
            ),
        ),
    ),
    CommandGroup(
        "Parts of a cluster, and other machines",
        (
            CliCommand("token", "token", "Create, list and delete tokens for joining a cluster"),
            CliCommand("server", "cluster.server", "Run an API server in the foreground"),
            CliCommand("node", "cluster.node", "Run a node agent in the foreground"),
            CliCommand(
                "node-autoscaler",
                "cluster.node_autoscaler",
                "Add and remove local nodes, as 'kedge up --nodes 1..5' does",
            ),
            CliCommand(
                "metrics-server",
                "cluster.metrics_server",
                "Serve the metrics API for a cluster that does not run kedge",
            ),
            CliCommand(
                "admission-webhook",
                "cluster.admission_webhook",
                "Enforce kedge's LimitRanges on a cluster that does not run kedge",
            ),
        ),
    ),
    CommandGroup(
        "This command",
        (
            CliCommand(
                "kubectl", "kubectl.command", "Run kubectl, and fetch it if there is none", True
            ),
            CliCommand(
                "completion", "completion.command", "Print the completion script of a shell"
            ),
            CliCommand("version", "version", "Print the version of kedge and of Kubernetes"),
        ),
    ),
)

COMMANDS: Final = tuple(command for group in GROUPS for command in group.commands)
