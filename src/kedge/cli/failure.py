"""How a command fails: in one paragraph that says what happened and what to do about it."""

from kedge.restarter.decision import DO_NOT_TRY_AGAIN, RUNS_ALREADY, TRY_LATER


class Failure(Exception):
    """The command failed; the message says why and what to do about it."""

    code = 1
    """The exit code of the command."""

    @property
    def said(self) -> str:
        return f"error: {self}"


class AlreadyRunning(Failure):
    """Another process already runs this part of the cluster."""

    code = RUNS_ALREADY


class PermanentFailure(Failure):
    """A retry fails too, until the cause is repaired."""

    code = DO_NOT_TRY_AGAIN


class TemporaryFailure(Failure):
    """A retry may succeed: the cause is temporary."""

    code = TRY_LATER


class StartFailure(Failure):
    """`kedge up` or `kedge run` could not start the cluster: the cause is the machine or a damaged
    file of the cluster, not the use of the command."""

    code = 125


class ServerRefusal(Failure):
    """The server would not do it; the message says so by itself."""

    @property
    def said(self) -> str:
        return str(self)
