from kedge.apiserver.admission.plugins import PLUGINS
from kedge.apiserver.admission.template_basis import TemplateBasis
from kedge.apiserver.assembly import assemble
from kedge.storage.memory import MemoryStore
from kedge.testing.clock import FakeClock


async def test_the_basis_of_each_plugin_is_known() -> None:
    clock = FakeClock()
    api = await assemble(MemoryStore(clock), clock, tuple(PLUGINS))
    basis = TemplateBasis(api.admission.counting_nothing, api.cache, api.catalog)
    assert basis.without_basis == []


async def test_a_plugin_without_a_basis_is_asked_about_each_pod() -> None:
    clock = FakeClock()
    api = await assemble(MemoryStore(clock), clock, ())
    basis = TemplateBasis(["Unheard"], api.cache, api.catalog)
    assert basis.without_basis == ["Unheard"]
