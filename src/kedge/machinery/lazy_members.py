"""Members of a package that are imported when they are first used.

For packages that are one door to many modules: an import of one module of such a package would
otherwise import all of them.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_members(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package. `modules` has the module of each member, by its name;
    the member of an own name is the module itself."""

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        found = module if modules[name] == f"{package}.{name}" else getattr(module, name)
        # From now on the name is found without this function.
        setattr(sys.modules[package], name, found)
        return found

    return find
