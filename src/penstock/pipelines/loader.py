"""Loads the pipeline of a command from a Python file or from `module:name`.

Functions of the file are pickled by value, so that Spark's workers do not need the file.
"""

import difflib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from penstock.pipelines.endpoints import PipelineError
from penstock.pipelines.pipeline import Pipeline


def load(target: str) -> Pipeline:
    """Loads `shop/orders.py`, `shop/orders.py:pipeline` or `shop.orders:pipeline`."""
    place, _, name = target.partition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_module(place)
    _pickle_by_value(module)
    found = {key: one for key, one in vars(module).items() if isinstance(one, Pipeline)}
    if name:
        if name not in found:
            close = difflib.get_close_matches(name, found, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PipelineError(f"{place} has no pipeline {name!r}{hint}")
        return found[name]
    distinct = {id(one): key for key, one in found.items()}
    if not distinct:
        raise PipelineError(f"{place} does not define a Pipeline")
    if len(distinct) > 1:
        names = ", ".join(sorted(distinct.values()))
        raise PipelineError(f"{place} has several pipelines: pass {place}:NAME, one of {names}")
    return found[next(iter(distinct.values()))]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"file not found: {path}")
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _from_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise PipelineError(
                f"module not found here or on the path: {error.name!r}; a file must end in .py"
            ) from None
        raise


def _pickle_by_value(module: ModuleType) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
