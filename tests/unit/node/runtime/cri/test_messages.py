import pytest

from kedge.deviceplugin import wire
from kedge.node.runtime.cri import messages as m


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (m.CriStopRequest(container_id="c", timeout=3), b"\x0a\x01c\x10\x03"),
        (m.CriPullRequest(image=m.CriImageSpec(image="i")), b"\x0a\x03\x0a\x01i"),
        (
            m.CriNamespaces(
                userns_options=m.CriUserNamespace(uids=[m.CriIdMapping(host_id=1, length=2)])
            ),
            b"\x2a\x06\x12\x04\x08\x01\x18\x02",
        ),
        (m.CriMount(uid_mappings=[m.CriIdMapping(host_id=1)]), b"\x32\x02\x08\x01"),
        (m.CriMount(recursive_read_only=True), b"\x40\x01"),
        (m.CriContainerSecurity(supplemental_groups_policy=m.STRICT), b"\x88\x01\x01"),
        (m.CriContainerConfig(stop_signal=23), b"\x90\x01\x17"),
        (m.CriImageSpec(user_specified_image="n"), b"\x92\x01\x01n"),
        (m.CriContainer(image_id="i"), b"\x52\x01i"),
        (m.CriContainerSecurity(run_as_user=m.CriInt64(value=0)), b"\x2a\x00"),
    ],
)
def test_messages_have_the_numbers_of_cri(message: object, encoded: bytes) -> None:
    assert wire.encode(message) == encoded
    assert wire.decode(type(message), encoded) == message


def test_fields_of_newer_runtimes_are_skipped() -> None:
    assert wire.decode(m.CriSandbox, b"\x0a\x01s\xfa\x3f\x03abc") == m.CriSandbox(id="s")


def test_methods_are_those_of_version_1() -> None:
    assert m.RUN_SANDBOX.path == "/runtime.v1.RuntimeService/RunPodSandbox"
    assert m.PULL_IMAGE.path == "/runtime.v1.ImageService/PullImage"


def test_credentials_are_not_shown() -> None:
    auth = m.CriRegistryAuth(username="me", password="secret", identity_token="token")
    assert repr(auth) == "CriRegistryAuth()"
