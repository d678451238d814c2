"""Scenarios of the registration."""

from kedge.api.core_v1.resource_names import is_extended
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.check.bench import PluginBench
from kedge.deviceplugin.check.scenario import (
    ScenarioDoubtful,
    ScenarioFailed,
    Scenarios,
    ScenarioSkipped,
    expect,
)

scenario: Scenarios[PluginBench] = Scenarios()

_GROUP = "registration"


@scenario(_GROUP, "registers", vital=True)
async def registers(bench: PluginBench) -> str:
    await bench.start()
    wanted = f" of {bench.resource}" if bench.resource else ""
    expect(
        await bench.arrives(1, bench.patience),
        f"no registration{wanted} within {bench.patience:g} s at {bench.socket}",
    )
    return bench.plugin.request.resource_name


@scenario(_GROUP, "names the API version v1beta1")
async def version(bench: PluginBench) -> None:
    named = bench.plugin.request.version
    expect(named == m.VERSION, f'it names "{named}"')


@scenario(_GROUP, "offers a resource that pods can ask for", vital=True)
async def name(bench: PluginBench) -> None:
    named = bench.plugin.request.resource_name
    expect(is_extended(named), f'"{named}" is no name such as example.com/gadget')


@scenario(_GROUP, "names its socket without a path", vital=True)
async def endpoint(bench: PluginBench) -> str:
    named = bench.plugin.request.endpoint
    expect(named and "/" not in named and named != m.SOCKET, f'its endpoint is "{named}"')
    return named


@scenario(_GROUP, "listens at that socket", vital=True)
async def listening(bench: PluginBench) -> None:
    expect(await bench.listens(10), f"nothing answers at {bench.path} within 10 s")


@scenario(_GROUP, "listens before it registers")
async def early(bench: PluginBench) -> None:
    if not bench.plugin.listening:
        raise ScenarioDoubtful(
            "it listens only when it has been answered, too late for most kubelets"
        )


@scenario(_GROUP, "can be called while it waits for the answer")
async def call_back(bench: PluginBench) -> None:
    if not bench.plugin.listening:
        raise ScenarioSkipped("it did not listen by then")
    expect(not bench.plugin.called_back, bench.plugin.called_back)


@scenario(_GROUP, "says the same of its options twice")
async def options(bench: PluginBench) -> None:
    told = bench.plugin.request.options
    if told is not None and bench.plugin.options is not None and told != bench.plugin.options:
        raise ScenarioDoubtful("GetDevicePluginOptions answers otherwise, and that is what counts")


@scenario(_GROUP, "registers once for a resource")
async def once(bench: PluginBench) -> str | None:
    await bench.clock.sleep(0.5)
    sockets = {each.request.endpoint for each in bench.chosen()}
    if len(sockets) > 1:
        raise ScenarioFailed(f"several sockets claim the resource: {', '.join(sorted(sockets))}")
    others = {each.request.resource_name for each in bench.arrivals} - {
        bench.plugin.request.resource_name
    }
    return f"other resources also came: {', '.join(sorted(others))}" if others else None
