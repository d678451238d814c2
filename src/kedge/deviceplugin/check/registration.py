"""How a plugin introduces itself."""

from kedge.api.core_v1.resource_names import is_extended
from kedge.deviceplugin import messages as m
from kedge.deviceplugin.check.bench import Bench
from kedge.deviceplugin.check.scenario import Doubtful, Failed, Scenarios, Skipped, expect

scenario = Scenarios()

_GROUP = "registration"


@scenario(_GROUP, "registers", vital=True)
async def registers(bench: Bench) -> str:
    await bench.start()
    wanted = f" of {bench.resource}" if bench.resource else ""
    expect(
        await bench.arrives(1, bench.patience),
        f"no registration{wanted} within {bench.patience:g} s at {bench.socket}",
    )
    return bench.plugin.request.resource_name


@scenario(_GROUP, "names the API version v1beta1")
async def version(bench: Bench) -> None:
    named = bench.plugin.request.version
    expect(named == m.VERSION, f'it names "{named}"')


@scenario(_GROUP, "offers a resource that pods can ask for", vital=True)
async def name(bench: Bench) -> None:
    named = bench.plugin.request.resource_name
    expect(is_extended(named), f'"{named}" is no name such as example.com/gadget')


@scenario(_GROUP, "names its socket without a path", vital=True)
async def endpoint(bench: Bench) -> str:
    named = bench.plugin.request.endpoint
    expect(named and "/" not in named and named != m.SOCKET, f'its endpoint is "{named}"')
    return named


@scenario(_GROUP, "listens at that socket", vital=True)
async def listening(bench: Bench) -> None:
    expect(await bench.listens(10), f"nobody answers at {bench.path} within 10 s")


@scenario(_GROUP, "listens before it registers")
async def early(bench: Bench) -> None:
    if not bench.plugin.listening:
        raise Doubtful("it listens only when it has been answered, too late for most kubelets")


@scenario(_GROUP, "can be called while it waits for the answer")
async def call_back(bench: Bench) -> None:
    if not bench.plugin.listening:
        raise Skipped("it did not listen by then")
    expect(not bench.plugin.called_back, bench.plugin.called_back)


@scenario(_GROUP, "says the same of its options twice")
async def options(bench: Bench) -> None:
    told = bench.plugin.request.options
    if told is not None and bench.plugin.options is not None and told != bench.plugin.options:
        raise Doubtful("GetDevicePluginOptions answers otherwise, and that is what counts")


@scenario(_GROUP, "registers once for a resource")
async def once(bench: Bench) -> str | None:
    await bench.clock.sleep(0.5)
    sockets = {each.request.endpoint for each in bench.chosen()}
    if len(sockets) > 1:
        raise Failed(f"several sockets claim the resource: {', '.join(sorted(sockets))}")
    others = {each.request.resource_name for each in bench.arrivals} - {
        bench.plugin.request.resource_name
    }
    return f"other resources also came: {', '.join(sorted(others))}" if others else None
