from pathlib import Path

import pytest

from kedge.apiserver.several.identity import KEY, OtherCluster, check
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock())


def keys(directory: Path, authority: str = "a", signing: str = "s") -> Path:
    directory.mkdir()
    (directory / "ca.crt").write_text(authority)
    (directory / "sa.pub").write_text(signing)
    return directory


async def test_servers_with_the_same_keys_are_of_one_cluster(
    store: MemoryStore, tmp_path: Path
) -> None:
    await check(store, keys(tmp_path / "one"))
    await check(store, keys(tmp_path / "other"))
    assert (await store.get(KEY)) is not None


@pytest.mark.parametrize(
    ("authority", "signing", "what"), [("b", "s", "ca.crt"), ("a", "t", "sa.key")]
)
async def test_a_server_with_another_key_is_told_to_copy_it(
    store: MemoryStore, tmp_path: Path, authority: str, signing: str, what: str
) -> None:
    await check(store, keys(tmp_path / "one"))
    with pytest.raises(OtherCluster, match=what) as refused:
        await check(store, keys(tmp_path / "other", authority, signing))
    assert "copy 'pki' and 'token'" in str(refused.value)


async def test_an_identity_that_cannot_be_read_is_not_replaced(
    store: MemoryStore, tmp_path: Path
) -> None:
    await store.put(KEY, b"?", expect=0)
    with pytest.raises(OtherCluster):
        await check(store, keys(tmp_path / "one"))
