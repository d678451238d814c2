"""AllocationRaced: what a write was to get went to another one in between."""

from kedge.machinery.errors import StatusCause, StatusError


class AllocationRaced(StatusError):
    """The write may be repeated with another choice; without one, it fails as upstream's does."""

    def __init__(self, why: str) -> None:
        message = f"Internal error occurred: {why}"
        super().__init__(500, "InternalError", message, causes=[StatusCause(message=why)])
