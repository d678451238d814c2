"""The door to grpcio, which is loaded when somebody is to be spoken to and not before."""

import importlib
import os
from functools import cache
from typing import Any


@cache
def load() -> Any:
    """The module `grpc`, with `grpc.aio`."""
    # It would write to standard error, and get in the way of whoever starts processes.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    importlib.import_module("grpc.aio")
    return importlib.import_module("grpc")


def refusal(error: Any) -> str:
    """An error of the library in the words of Go's, which people know from other clusters."""
    code = "".join(part.capitalize() for part in error.code().name.split("_"))
    return f"rpc error: code = {_GO.get(code, code)} desc = {error.details()}"


_GO = {"Cancelled": "Canceled", "Ok": "OK"}
