"""The decorator of asynchronous tests: `@run_with(on_node, configs=FEW)`.

A runner starts what a test needs (a loop, a node, a client), calls the test with it and cleans
up. Positional parameters of the test come from the runner, keyword-only ones are pytest's fixtures
and parameters.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


def run_with(
    runner: Callable[..., object], *args: Any, **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Makes a test of an asynchronous function: `runner(function, *args, **options)`."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [
            parameter.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
            for parameter in signature.parameters.values()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ]

        @functools.wraps(test)
        def run(*given: Any, **values: Any) -> None:
            # Hypothesis passes what it draws by position.
            values |= {one.name: value for one, value in zip(fixtures, given, strict=False)}
            runner(functools.partial(test, **values) if values else test, *args, **options)

        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def in_new_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test in an event loop of its own."""
    asyncio.run(test())  # type: ignore[arg-type]
