"""Remove a new cluster whose start has failed: it holds nothing."""

from pathlib import Path

from kedge.cli.cluster import node_pool, registry, restarts, state
from kedge.cli.cluster.down import withdraw_context
from kedge.cli.cluster.logs import keep_logs, kept_name, log_files
from kedge.cli.cluster.up.command import UpConfig


def discard(config: UpConfig, message: str) -> str:
    """Delete the files of the cluster. Logs that the message about the failure names are kept
    elsewhere; returns the message with their new names. For who is `changing` the cluster."""
    directory, name = config.server.state, config.server.name
    logs = log_files(directory)
    if any(str(each) in message for each in logs):
        # Not above: most starts succeed.
        import tempfile

        place = Path(tempfile.mkdtemp(prefix=f"kedge-up-{name}-"))
        keep_logs(directory, place)
        for each in logs:
            message = message.replace(str(each), str(place / kept_name(directory, each)))
    withdraw_context(directory, config.root)
    restarts.forget(directory)
    node_pool.forget(directory)
    state.delete(directory)
    registry.forget(config.root, name, directory)
    return message
