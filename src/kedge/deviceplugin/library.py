"""gRPC for device plugins: the library, loaded when needed, and its errors in words."""

from typing import Any


def load() -> Any:
    """The module `grpc`, with `grpc.aio`."""
    from kedge.machinery import grpc_library

    return grpc_library.load()


def refusal(error: Any) -> str:
    """An error of the library in the words of Go's, which people know from other clusters."""
    code = "".join(part.capitalize() for part in error.code().name.split("_"))
    return f"rpc error: code = {_GO.get(code, code)} desc = {error.details()}"


_GO = {"Cancelled": "Canceled", "Ok": "OK"}
