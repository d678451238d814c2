"""Which kubeconfig and context a command uses."""

from argparse import Namespace
from pathlib import Path

from kedge.cli.config.kubeconfig import client_config
from kedge.cli.config.settings import Settings
from kedge.cli.config.up import up_config
from kedge.cli.main import parser
from kedge.cli.objects.client_flags import ClientConfig


def flags(*arguments: str) -> Namespace:
    return parser().parse_args(arguments)


def test_the_kubeconfig_is_the_flags_else_the_one_kubectl_would_change(
    environment: dict[str, str], tmp_path: Path
) -> None:
    def chosen(*arguments: str) -> Path:
        return up_config(Settings(flags("up", *arguments), environment)).kubeconfig

    assert chosen() == tmp_path / ".kube" / "config"
    environment["KUBECONFIG"] = str(tmp_path / "a")
    assert chosen() == tmp_path / "a"
    assert chosen(f"--kubeconfig={tmp_path / 'b'}") == tmp_path / "b"


def test_a_client_goes_where_kubectl_would(environment: dict[str, str], tmp_path: Path) -> None:
    def found(*arguments: str) -> ClientConfig:
        return client_config(Settings(flags("get", "pods", *arguments), environment))

    caches = tmp_path / ".cache" / "kedge"
    assert found() == ClientConfig([tmp_path / ".kube" / "config"], caches=caches)
    environment["KUBECONFIG"] = "a:b"
    environment["XDG_CACHE_HOME"] = "/var/cache/me"
    caches = Path("/var/cache/me/kedge")
    assert found("-n=x", "--context=c") == ClientConfig([Path("a"), Path("b")], "c", "x", caches)
    assert found("--kubeconfig=f").files == [Path("f")]
