"""`kedge admission-webhook --print-manifests`, and what it refuses."""

from pathlib import Path

import pytest
import yaml

from kedge.cli.cluster import admission_webhook
from kedge.cli.failure import Failure
from kedge.cli.main import parser
from kedge.machinery.certificates import names_host


def run(*flags: str) -> int:
    return admission_webhook.run(parser().parse_args(["admission-webhook", *flags]))


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--print-manifests"], "say where the webhook runs"),
        (["--print-manifests", "--url=https://a", "--image=b"], "say where the webhook runs"),
        (["--print-manifests", "--url=http://a"], "https://ADDRESS:PORT only"),
        (["--print-manifests", "--url=https://"], "https://ADDRESS:PORT only"),
        (["--url=https://a"], "are for --print-manifests"),
        (["--print-manifests", "--tls-cert-file=/a"], "belong together"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, flags: list[str], why: str) -> None:
    with pytest.raises(Failure, match=why):
        run(f"--state={tmp_path}", *flags)


def test_the_certificate_is_good_for_the_printed_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"--state={tmp_path}", "--print-manifests", "--url=https://hooks.example:1") == 0
    printed = capsys.readouterr()
    assert "--cert-hosts=hooks.example" in printed.err
    kinds = [each["kind"] for each in yaml.safe_load_all(printed.out)]
    assert kinds[0] == "CustomResourceDefinition"
    assert "Deployment" not in kinds
    certificate = (tmp_path / "pki" / "server.crt").read_bytes()
    assert names_host(certificate, "hooks.example")


@pytest.mark.parametrize(
    "flags", [["--url=https://127.0.0.1:1"], ["--url=https://a:1", "--cert-hosts=a"]]
)
def test_nothing_is_said_of_names_that_the_certificate_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert run(f"--state={tmp_path}", "--print-manifests", *flags) == 0
    assert capsys.readouterr().err == ""


def test_the_secret_of_a_deployment_has_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"--state={tmp_path}", "--print-manifests", "--image=kedge:1") == 0
    documents = list(yaml.safe_load_all(capsys.readouterr().out))
    secret = next(each for each in documents if each["kind"] == "Secret")
    assert set(secret["data"]) == {"tls.crt", "tls.key"}
    deployment = next(each for each in documents if each["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "kedge:1"
