"""Which cluster a command is about."""

from argparse import Namespace
from pathlib import Path

from kedge.cli.cluster.registry import ClusterLocation
from kedge.cli.config.cluster import where
from kedge.cli.config.settings import Settings
from kedge.cli.main import parser


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_a_name_on_the_command_line_beats_a_directory_in_the_environment(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KEDGE_STATE"] = str(tmp_path / "there")
    root = tmp_path / "state" / "kedge"
    by_name = where(Settings(flags("status", "--name=red"), environment))
    by_default = where(Settings(flags("status"), environment))
    assert by_name == ClusterLocation(root, "red", None)
    assert by_default == ClusterLocation(root, "default", tmp_path / "there")
