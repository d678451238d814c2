"""The only import of grpcio, loaded at the first connection."""

import importlib
import os
from functools import cache
from typing import Any


@cache
def load() -> Any:
    """The module `grpc`, with `grpc.aio`."""
    # gRPC would log to standard error, and its fork handlers disturb programs that fork.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    importlib.import_module("grpc.aio")
    return importlib.import_module("grpc")
