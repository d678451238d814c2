from kedge.api.core_v1 import resource_quota
from kedge.apiserver.quota.claims import QuotaClaims
from kedge.apiserver.quota.first_quota import FirstQuota
from kedge.apiserver.quota.ledger import QuotaLedger
from kedge.apiserver.quota.local_claims import LocalQuotaClaims
from kedge.testing.local_server import LocalServer


async def test_claims_are_loaded_with_the_first_quota_and_stay(server: LocalServer) -> None:
    cache, clock = server.app.api.cache, server.clock
    loads = []

    def load() -> QuotaClaims:
        claims = LocalQuotaClaims(server.store, cache, QuotaLedger(cache, clock), clock)
        loads.append(claims)
        return claims

    first = FirstQuota(cache.of(resource_quota.RESOURCE), load)
    assert first.get() is None
    path = "/api/v1/namespaces/default/resourcequotas"
    await server.post(path, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    assert first.claims is None
    found = first.get()
    assert found is not None
    assert found.ledger.limits("default")
    await server.delete(f"{path}/q")
    assert first.get() is found
    assert loads == [found]
