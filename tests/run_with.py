"""The decorator of asynchronous tests: `@run_with(on_node, configs=FEW)`.

A runner starts what a test needs (a loop, a node, a client), calls the test with it and cleans
up. Positional parameters of the test come from the runner, keyword-only ones are pytest's fixtures
and parameters. A runner that needs fixtures or parameters itself gets those that the decorator
names: `@run_with(on_port, fixtures=["tmp_path"])`.
"""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

POSITIONAL = inspect.Parameter.POSITIONAL_OR_KEYWORD


def run_with(
    runner: Callable[..., object], *args: Any, fixtures: Sequence[str] = (), **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Makes a test of an asynchronous function: `runner(function, *args, **options)`.

    The runner gets the named fixtures by keyword.
    """

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        signature = inspect.signature(test)
        own = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY
        ]
        requested = [*own, *(name for name in fixtures if name not in own)]

        @functools.wraps(test)
        def run(*given: Any, **values: Any) -> None:
            # Hypothesis passes what it draws by position.
            values |= dict(zip(requested, given, strict=False))
            passed = {name: values[name] for name in own}
            needed = {name: values[name] for name in fixtures}
            bound = functools.partial(test, **passed) if passed else test
            runner(bound, *args, **options, **needed)

        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[
                signature.parameters.get(name, inspect.Parameter(name, POSITIONAL)).replace(
                    kind=POSITIONAL
                )
                for name in requested
            ]
        )
        return run

    return decorate


def in_new_loop(test: Callable[[], Awaitable[None]]) -> None:
    """Runs a test in an event loop of its own."""
    asyncio.run(test())  # type: ignore[arg-type]


def with_seeds(
    test: Callable[..., Awaitable[None]], count: int, runner: Callable[..., object]
) -> None:
    """Runs a test once for each of the seeds 0 to `count` - 1."""
    for seed in range(count):
        runner(test, seed)
