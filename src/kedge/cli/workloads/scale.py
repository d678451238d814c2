"""`kedge scale`: how many pods a workload has."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Final

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.objects import client_flags

if TYPE_CHECKING:
    from kedge.cli.objects.connection import ApiSession

DESCRIPTION: Final = """\
Change the number of pods of Deployments, ReplicaSets, StatefulSets, or of any kind with a scale
subresource, as 'kubectl scale' does. The command returns when the number is written; 'kedge rollout
status' waits for the pods."""
EXAMPLES: Final = """\
  # Three pods
  kedge scale deploy/web --replicas 3

  # Only if there are two now
  kedge scale deploy/web --current-replicas 2 --replicas 3

  # Several at once
  kedge scale --replicas 0 deploy/web sts/db"""


def add_flags(parser: ArgumentParser) -> None:
    client_flags.add_words(parser, required=True)
    parser.add_argument(
        "--replicas", type=int, required=True, metavar="N", help="how many pods there should be"
    )
    parser.add_argument(
        "--current-replicas",
        type=int,
        metavar="N",
        help="fail unless this is the number that is written there now",
    )
    client_flags.add_cluster(parser)
    client_flags.add_dry_run(parser)


def run(flags: Namespace) -> int:
    from kedge.cli.failure import Failure
    from kedge.cli.objects.connection import visit

    if flags.replicas < 0:
        raise Failure(
            "The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0"
        )
    return visit(client_config(Settings(flags)), lambda there: scale(there, flags))


async def scale(there: "ApiSession", flags: Namespace) -> int:
    """Write the number of pods of each named object."""
    import msgspec

    from kedge.cli.failure import Failure
    from kedge.cli.objects.connection import document_in
    from kedge.cli.objects.targets import kind_of
    from kedge.client.client import MERGE_PATCH, path_of

    is_dry = flags.dry_run == "server"
    for resource, name in await there.targets(flags.words):
        if not name:
            raise Failure(f"name one of the {resource.plural}, as in {resource.plural}/NAME")
        path = path_of(resource, there.within(resource), name, "scale")
        patch: dict[str, object] = {"spec": {"replicas": flags.replicas}}
        if flags.current_replicas is not None:
            found = document_in((await there.client.send("GET", path)).body)
            now = found["spec"].get("replicas", 0)
            if now != flags.current_replicas:
                raise Failure(f"Expected replicas to be {flags.current_replicas}, was {now}")
            patch["metadata"] = {"resourceVersion": found["metadata"]["resourceVersion"]}
        await there.client.send(
            "PATCH",
            path,
            {"dryRun": "All" if is_dry else ""},
            body=msgspec.json.encode(patch),
            content=MERGE_PATCH,
        )
        print(f"{kind_of(resource)}/{name} scaled{' (server dry run)' if is_dry else ''}")
    return 0
