"""Every msgspec struct of the package."""

import importlib
import pkgutil
from functools import cache
from typing import Any, Final

import msgspec

import penstock

# These start programs or need packages that are not everywhere.
NOT_IMPORTED: Final = ("__main__",)


@cache
def import_everything() -> None:
    """Imports all modules of the package."""
    for found in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if not found.name.endswith(NOT_IMPORTED):
            importlib.import_module(found.name)


def subclasses(base: type[Any]) -> set[type[Any]]:
    """All classes below a class."""
    found = set()
    for kind in base.__subclasses__():
        found |= {kind} | subclasses(kind)
    return found


def structs_of(*modules: str) -> set[type[Any]]:
    """The structs that are declared in these modules, or in packages of these names."""
    import_everything()
    return {
        kind
        for kind in subclasses(msgspec.Struct)
        if any(f"{kind.__module__}.".startswith(f"{one}.") for one in modules)
    }
