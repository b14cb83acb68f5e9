"""Clients' regular expressions, evaluated by RE2: in linear time, whatever the pattern.

For KIP-848 subscriptions and the filter of ListTransactions. A pattern matches a whole name.
"""

from collections.abc import Callable
from functools import lru_cache

import re2  # type: ignore[import-untyped]

from penstock.base.errors import ErrorCode, Refused

PATTERN_MEMORY_BYTES_MAX = 1 << 20
REMEMBERED_MAX = 1_000

_options = re2.Options()
_options.log_errors = False
_options.max_mem = PATTERN_MEMORY_BYTES_MAX


@lru_cache(maxsize=REMEMBERED_MAX)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Returns a full-match test; raises Refused(INVALID_REGULAR_EXPRESSION)."""
    try:
        compiled = re2.compile(pattern, _options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be used"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"the pattern {pattern!r} is not RE2: {reason}"
        ) from None
    return lambda name: compiled.fullmatch(name) is not None
