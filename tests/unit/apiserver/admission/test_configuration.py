from pathlib import Path

import pytest

from kedge.apiserver.admission.configuration import UNCONFIGURED, read
from kedge.apiserver.configuration_file import ConfigurationFileError

HEAD = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
POLICY = """\
apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline}
"""


def file(tmp_path: Path, text: str, name: str = "admission.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def inside(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def test_a_plugin_is_configured_in_the_file_or_beside_it(tmp_path: Path) -> None:
    plugins = f"plugins:\n- name: PodSecurity\n  configuration:\n{inside(POLICY)}"
    found = read(file(tmp_path, HEAD + plugins))
    assert str(found.pod_security.defaults.enforce) == "baseline:latest"
    file(tmp_path, POLICY, "policy.yaml")
    beside = "plugins: [{name: PodSecurity, path: policy.yaml}]\n"
    assert read(file(tmp_path, HEAD + beside)) == found


def test_a_file_without_plugins_configures_nothing(tmp_path: Path) -> None:
    assert read(file(tmp_path, HEAD)) == UNCONFIGURED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kind: Pod\n", "Pod is not AdmissionConfiguration of"),
        (HEAD + "plugins: [{name: EventRateLimit}]", 'plugin "EventRateLimit" has no config'),
        (HEAD + "plugin: []", "unknown field `plugin`"),
        (HEAD + HEAD, "already"),
        (HEAD + "plugins: [{name: PodSecurity, path: gone}]", "cannot read"),
        ("[", "configuration '"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigurationFileError, match=why):
        read(file(tmp_path, text))
