"""Finds the pipeline that a command means: a file of Python, or `module:name`.

What the file defines goes to Spark's workers by value, so that they need not have the file.
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
    """`shop/orders.py`, `shop/orders.py:pipeline`, `shop.orders:pipeline`."""
    place, _, name = target.partition(":")
    module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place)
    _travel_with(module)
    found = {key: one for key, one in vars(module).items() if isinstance(one, Pipeline)}
    if name:
        if name not in found:
            close = difflib.get_close_matches(name, found, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise PipelineError(f"{place} has no pipeline {name!r}{hint}")
        return found[name]
    distinct = {id(one): key for key, one in found.items()}
    if not distinct:
        raise PipelineError(f"{place} makes no Pipeline")
    if len(distinct) > 1:
        names = ", ".join(sorted(distinct.values()))
        raise PipelineError(f"{place} has several pipelines: write {place}:NAME, one of {names}")
    return found[next(iter(distinct.values()))]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PipelineError(f"there is no file {path}")
    sys.path.insert(0, str(path.resolve().parent))
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _from_path(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and name.startswith(error.name):
            raise PipelineError(
                f"there is no module {error.name!r} here or on the path; a file ends in .py"
            ) from None
        raise


def _travel_with(module: ModuleType) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(module)
