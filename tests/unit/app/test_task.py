"""Task retry policy: retryable errors, backoff, validation of options."""

from typing import Any

import pytest

from penstock.app.message import Message
from penstock.app.task import Reject, Retry, RetryBackoff, Task
from simulation.random import SimRandom


def task(**changes: object) -> Task[Any, Any]:
    async def handle(message: Message) -> None: ...

    values: dict[str, object] = {
        "handler": handle,
        "topics": ("jobs",),
        "group": "workers",
        "retries": 3,
        "backoff": RetryBackoff(1.0, 5.0),
        "concurrency": 1,
        "no_retry": (KeyError,),
        "timeout_s": None,
        "order": None,
        "prefetch": 1,
    }
    return Task(**{**values, **changes})  # type: ignore[arg-type]


def test_retries_are_limited_and_some_errors_are_final() -> None:
    declared = task()
    assert [declared.is_final(ValueError(), attempt) for attempt in (1, 2, 3, 4)] == [
        False,
        False,
        False,
        True,
    ]
    assert declared.is_final(KeyError("x"), 1)
    assert declared.is_final(Reject("x"), 1)
    assert not declared.is_final(Retry(), 100)
    assert task(retries=0).is_final(ValueError(), 1)


def test_backoff_doubles_to_the_cap_with_jitter() -> None:
    random = SimRandom(1)
    declared = task()
    for attempt, least in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 5.0), (60, 5.0)):
        assert least <= declared.delay_s(ValueError(), attempt, random) <= least + 1.0
    assert declared.delay_s(Retry(delay="10m"), 1, random) == 600
    assert declared.delay_s(Retry(), 1, random) <= 2.0
    assert task(backoff=RetryBackoff(0)).delay_s(ValueError(), 5, random) == 0


def test_async_handlers_are_recognised() -> None:
    class Callable:
        async def __call__(self, message: Message) -> None: ...

    assert task().is_async
    assert task(handler=Callable()).is_async
    assert not task(handler=lambda message: None).is_async
    assert task().name.endswith("handle")


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"concurrency": 0}, {"order": "time"}])
def test_invalid_options_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        task(**wrong)
