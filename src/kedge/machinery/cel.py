"""CEL expressions: compiled once, tested often; the one door to the library that knows CEL.

The library is imported with the first expression: most clusters never see one.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple


class CelError(Exception):
    """An expression that does not compile, or whose evaluation fails."""


class CelCondition:
    """An expression that is true or false."""

    __slots__ = ("_language", "_program", "expression")

    def __init__(self, expression: str, variables: tuple[str, ...]) -> None:
        self.expression = expression
        self._language = _language(variables)
        try:
            self._program = self._language.environment.compile(expression)
        except Exception as error:
            raise CelError(f"compilation failed: {_readable(error)}") from None
        if self._program.return_type() not in self._language.truths:
            raise CelError("must evaluate to bool")

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is true of plain documents; loops that go on too long are an error."""
        try:
            result = self._program.eval(data=values)
        except Exception as error:
            raise self._failed(_readable(error)) from None
        if result.type() == self._language.error:
            raise self._failed(_readable(result.value()))
        truth = result.value()
        if not isinstance(truth, bool):
            raise self._failed("must evaluate to bool")
        return truth

    def _failed(self, why: str) -> CelError:
        return CelError(f"expression '{self.expression}' resulted in error: {why}")


class _Language(NamedTuple):
    environment: Any
    truths: tuple[Any, ...]
    """The types that the compiler may give to a condition."""
    error: Any
    """The type of a value that stands for a failure."""


@lru_cache(maxsize=8)
def _language(variables: tuple[str, ...]) -> _Language:
    """Return the CEL environment with these variables."""
    try:
        from cel_expr_python import cel
        from cel_expr_python.ext import ext_bindings, ext_math, ext_optional, ext_strings
    except ImportError:
        raise CelError("this server has no CEL: the package cel-expr-python is missing") from None
    extensions = [
        ext_bindings.ExtBindings(),
        ext_math.ExtMath(),
        ext_optional.ExtOptional(),
        ext_strings.ExtStrings(),
    ]
    names = dict.fromkeys(variables, cel.Type.DYN)
    environment = cel.NewEnv(variables=names, extensions=extensions)
    return _Language(environment, (cel.Type.BOOL, cel.Type.DYN), cel.Type.ERROR)


_NO_KEY = "Key not found in map : "
_NO_FIELDS = "Applying SELECT to non-message type"
_CODE = re.compile(r"^[A-Z_]+: (?!<input>)|\s*\[[A-Z_]+\]$")


def _readable(error: object) -> str:
    """The library's complaint without its codes, and without quoting any object."""
    told = _CODE.sub("", str(error))
    if told.startswith(_NO_KEY):
        return f"no such key: {told.removeprefix(_NO_KEY).strip(chr(34))}"
    return "no such key" if told == _NO_FIELDS else told.partition(" out of range for ")[0]
