"""Move the clock of a cluster for tests, and print where it stands."""

from argparse import Namespace
from collections.abc import Awaitable, Callable

from kedge.api.testing.clock_change import ClockChange, ClockState
from kedge.cli.failure import Failure
from kedge.cli.objects.connection import ApiSession
from kedge.cli.output import printers
from kedge.client.controls import ControlsClient, NotForTests


def changing(flags: Namespace) -> Callable[[ApiSession], Awaitable[int]]:
    """Return the work of the command."""
    change = change_of(flags)

    async def deed(there: ApiSession) -> int:
        controls = ControlsClient(there.client)
        try:
            found = await (controls.clock() if change is None else controls.change_clock(change))
        except NotForTests as error:
            raise Failure(str(error)) from None
        print(printers.document(found, flags.output) if flags.output else shown(found))
        return 0

    return deed


def change_of(flags: Namespace) -> ClockChange | None:
    """Return the change that the flags describe; None to change nothing."""
    match flags.deed:
        case "advance":
            return ClockChange(advance=flags.advance)
        case "freeze":
            return ClockChange(frozen=True)
        case "resume":
            return ClockChange(frozen=False)
        case _:
            return None


def shown(clock: ClockState) -> str:
    """Return a line about the clock."""
    ahead = f"{abs(clock.offset):.0f} s {'ahead of' if clock.offset >= 0 else 'behind'} the machine"
    return f"{clock.now}, {ahead}{', frozen' if clock.frozen else ''}"
