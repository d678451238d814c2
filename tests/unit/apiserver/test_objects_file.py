from pathlib import Path

from kedge.apiserver import objects_file
from kedge.apiserver.server import begin
from kedge.storage.memory import MemoryStore
from kedge.storage.store import StoreEntry
from kedge.testing.clock import FakeClock


async def test_a_new_store_begins_with_the_objects_of_a_file_the_oldest_first(
    tmp_path: Path,
) -> None:
    younger = StoreEntry("/registry/pods/a/b", b'{"kind":"Pod"}', 9, 7)
    older = StoreEntry("/registry/configmaps/a/b", b'{"kind":"ConfigMap"}', 8, 2)
    file = tmp_path / "objects"
    file.write_bytes(objects_file.encode([younger, older]))
    store = MemoryStore(FakeClock())
    assert await begin(store, FakeClock(), file)
    found = (await store.list("")).entries
    assert [(each.key, each.value, each.created) for each in found] == [
        ("/registry/configmaps/a/b", b'{"kind":"ConfigMap"}', 2),
        ("/registry/pods/a/b", b'{"kind":"Pod"}', 3),
    ]
