from typing import Any

import pytest

from kedge.api.core_v1 import resource_quota
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.quota.statuses import QuotaStatuses
from kedge.machinery.quantity import Quantity
from kedge.storage.store import RevisionConflict
from kedge.testing.local_server import LocalServer
from kedge.testing.pods import pod_document

CORE = "/api/v1/namespaces/default"
QUOTA = f"{CORE}/resourcequotas/q"


async def statuses(server: LocalServer, **hard: str) -> QuotaStatuses:
    """Of a namespace with one pod and one quota."""
    await server.post(f"{CORE}/pods", pod_document())
    await server.post(f"{CORE}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    cache = server.app.api.cache
    return QuotaStatuses(server.store, cache, QuotaLedger(cache, server.clock), server.clock)


async def set_status(server: LocalServer, **status: Any) -> None:
    await server.merge(f"{QUOTA}/status", {"status": status})


async def test_a_status_is_due_until_it_is_written(server: LocalServer) -> None:
    found = await statuses(server, pods="5", services="5")
    [due] = found.due("default", ["q", "gone"])
    one, five = Quantity.parse("1"), Quantity.parse("5")
    assert due.status == resource_quota.ResourceQuotaStatus(
        hard={"pods": five, "services": five}, used={"pods": one, "services": one}
    )
    await found.write([due])
    assert (await server.get(QUOTA))["status"]["used"] == {"pods": "1", "services": "1"}
    assert found.due("default", ["q"]) == []


@pytest.mark.parametrize(
    ("used", "may_fall", "expected"),
    [("0", True, "1"), ("0", False, "1"), ("4", True, "1"), ("4", False, None)],
)
async def test_an_amount_falls_only_if_it_may(
    server: LocalServer, used: str, may_fall: bool, expected: str | None
) -> None:
    found = await statuses(server, pods="5")
    await set_status(server, hard={"pods": "5"}, used={"pods": used})
    due = found.due("default", ["q"], may_fall=may_fall)
    assert [str(each.status.used["pods"]) for each in due] == ([expected] if expected else [])


async def test_equal_amounts_in_other_words_are_not_due(server: LocalServer) -> None:
    found = await statuses(server, pods="5000m")
    await set_status(server, hard={"pods": "5"}, used={"pods": "1000m"})
    assert found.due("default", ["q"]) == []


async def test_a_status_is_written_only_in_place_of_the_one_that_was_read(
    server: LocalServer,
) -> None:
    found = await statuses(server, pods="5")
    due = found.due("default", ["q"])
    before = found.newest("default", ["q"])
    await server.merge(QUOTA, {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(RevisionConflict):
        await found.write(due)
    assert found.newest("default", ["q"]) > before
    await found.bring_up("default", ["q"])
    quota = await server.get(QUOTA)
    assert quota["status"]["used"] == {"pods": "1"}
    assert quota["metadata"]["labels"] == {"a": "b"}


async def test_owners_of_other_fields_stay(server: LocalServer) -> None:
    found = await statuses(server, pods="5", services="5")
    await set_status(server, hard={"pods": "5", "services": "5"}, used={"pods": "0"})
    await found.bring_up("default", ["q"])
    meta = (await server.get(QUOTA))["metadata"]
    owned = {each["manager"]: each["fieldsV1"] for each in meta["managedFields"]}
    used: dict[str, object] = {"f:pods": {}, "f:services": {}}
    assert owned.pop("kube-apiserver") == {"f:status": {"f:used": used}}
    assert len(owned) == 1


async def test_a_quota_whose_owners_are_not_tracked_stays_so(server: LocalServer) -> None:
    found = await statuses(server, pods="5")
    await server.merge(QUOTA, {"metadata": {"managedFields": [{}]}})
    await found.bring_up("default", ["q"])
    quota = await server.get(QUOTA)
    assert "managedFields" not in quota["metadata"]
    assert quota["status"]["used"] == {"pods": "1"}
