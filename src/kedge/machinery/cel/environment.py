"""An environment: the variables, functions, macros and object types an expression may use."""

from collections.abc import Callable, Mapping
from typing import Final

from kedge.machinery.cel.conversions import STANDARD_FUNCTIONS
from kedge.machinery.cel.functions import Functions, merged
from kedge.machinery.cel.libraries.addresses import ADDRESSES
from kedge.machinery.cel.libraries.authorizer import AUTHORIZER_FUNCTIONS
from kedge.machinery.cel.libraries.formats import FORMATS
from kedge.machinery.cel.libraries.lists import LISTS
from kedge.machinery.cel.libraries.optionals import OPTIONALS
from kedge.machinery.cel.libraries.quantities import QUANTITIES
from kedge.machinery.cel.libraries.text import TEXT
from kedge.machinery.cel.libraries.urls import URLS
from kedge.machinery.cel.libraries.versions import VERSIONS
from kedge.machinery.cel.macros import STANDARD
from kedge.machinery.cel.operators import OPERATORS
from kedge.machinery.cel.types import CelType

BASE_FUNCTIONS: Final[Functions] = merged(
    OPERATORS,
    STANDARD_FUNCTIONS,
    TEXT,
    LISTS,
    OPTIONALS,
    QUANTITIES,
    ADDRESSES,
    URLS,
    VERSIONS,
    FORMATS,
    AUTHORIZER_FUNCTIONS,
)
"""The functions that Kubernetes 1.36 offers in every expression."""

ObjectTypes = Callable[[str], CelType | None]


def _no_object(name: str) -> CelType | None:
    return None


class Environment:
    """The names that an expression may refer to."""

    __slots__ = ("functions", "macros", "object_type", "slots", "variables")

    def __init__(
        self,
        variables: Mapping[str, CelType],
        *,
        more_functions: Functions | None = None,
        macros: frozenset[str] = STANDARD,
        object_type: ObjectTypes = _no_object,
    ) -> None:
        self.variables = dict(variables)
        self.slots = {name: i for i, name in enumerate(self.variables)}
        """Where the value of each variable stands in the list that evaluation takes."""
        self.functions = (
            merged(BASE_FUNCTIONS, more_functions) if more_functions else BASE_FUNCTIONS
        )
        self.macros = macros
        self.object_type = object_type
        """Returns the type of an object literal by its name; None if there is none."""
