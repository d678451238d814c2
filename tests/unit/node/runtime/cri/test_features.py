import pytest

from kedge.deviceplugin import wire
from kedge.node.runtime.cri import features
from kedge.node.runtime.cri import messages as m
from kedge.node.runtime.runtime import RuntimeFeatures

# What CRI-O 1.36.3 with runc 1.1.5 says, without its conditions: a default handler, which has no
# name, the same handler by its name, and the features of the runtime.
HANDLERS = b"\x1a\x04\x12\x02\x08\x01\x1a\x0a\x0a\x04runc\x12\x02\x08\x01"
STATUS = HANDLERS + b"\x22\x02\x08\x01"


def version(name: str, number: str) -> m.CriVersion:
    return m.CriVersion(runtime_name=name, runtime_version=number)


def test_features_are_those_of_the_default_handler() -> None:
    status = wire.decode(m.CriRuntimeStatus, STATUS)
    assert [each.name for each in status.runtime_handlers] == ["", "runc"]
    assert features.of_runtime(version("cri-o", "1.36.3"), status) == RuntimeFeatures(
        strict_groups=True, recursive_read_only=True, stop_signals=True
    )
    with_users = m.CriHandler(features=m.CriHandlerFeatures(user_namespaces=True))
    found = features.of_runtime(
        version("containerd", "2.1.0"), m.CriRuntimeStatus(runtime_handlers=[with_users])
    )
    assert found == RuntimeFeatures(user_namespaces=True)
    other = m.CriHandler(
        name="other", features=m.CriHandlerFeatures(recursive_read_only_mounts=True)
    )
    status = m.CriRuntimeStatus(runtime_handlers=[other])
    assert features.of_runtime(version("containerd", "1.7.0"), status) == RuntimeFeatures()


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("cri-o", "1.33.0", True),
        ("cri-o", "v1.40.1-dev", True),
        ("cri-o", "1.32.9", False),
        ("cri-o", "unknown", False),
        ("containerd", "1.6.20", False),
        ("containerd", "2.1.0", False),
    ],
)
def test_stop_signals_are_known_by_the_version(name: str, number: str, *, expected: bool) -> None:
    found = features.of_runtime(version(name, number), m.CriRuntimeStatus())
    assert found.stop_signals is expected
