"""Terms of leaders: a record in the store that changes when another server begins to lead.

The writes of a leader are compared with its record in the transaction that writes. The Lease itself
cannot be that record, because its holder changes it, too.
"""

from typing import Final

from kedge.api.coordination_v1 import lease
from kedge.apiserver.several.records import PREFIX
from kedge.machinery.errors import StatusError, unavailable
from kedge.machinery.write_guard import WriteGuard, guarded
from kedge.storage.store import Store, StoreError

NAMESPACE: Final = "kube-system"
LEADERS: Final = f"{PREFIX}leaders/"


async def begin_term(store: Store, office: str, identity: str, lease_revision: int) -> WriteGuard:
    """Return the guard of a leader, who wrote its Lease at this revision; raises StatusError. The
    writes of leaders before it are refused from now on."""
    # A server that was stopped meanwhile, and whose Lease another one has, changes nothing.
    is_held = WriteGuard(lease.RESOURCE.key(NAMESPACE, office), lease_revision)
    key = f"{LEADERS}{office}"
    try:
        found = await store.get(key)
        expect = found.revision if found is not None else 0
        entry = await guarded(is_held, store.put(key, identity.encode(), expect=expect))
    except StoreError as error:
        raise _not_begun(error) from None
    return WriteGuard(key, entry.revision)


def _not_begun(error: StoreError) -> StatusError:
    return unavailable(f"the term of a leader has not begun: {error}")
