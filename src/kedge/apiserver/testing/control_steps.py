"""ControlSteps: where the controls of a cluster for tests take part in requests."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kedge.apiserver.context import RequestContext


class ControlSteps(NamedTuple):
    """Steps that App adds to its own. Servers that are not for tests have none, and no cost."""

    before_work: Sequence[Callable[[RequestContext], None]] = ()
    """After authorization, before the handler."""
    after_work: Sequence[Callable[[RequestContext], None]] = ()
    """When the handler has answered, or has begun to work."""
    last: Sequence[Callable[[RequestContext], None]] = ()
    """When the response is complete, or has begun to stream."""


NO_CONTROLS: Final = ControlSteps()
