"""Subjects and versions as clients write them."""

import unicodedata

from penstock.registry.calls import LATEST
from penstock.registry.errors import Number, Rejected
from penstock.registry.limits import SUBJECT_CHARS_MAX

RESERVED = ("__GLOBAL", "__EMPTY")
DEFAULT_CONTEXT = ":.:"
VERSION_MAX = 2**31 - 1
DIGITS_MAX = 10


def check_subject(written: str) -> str:
    """A subject that may be registered; contexts other than the default one are not kept."""
    subject = plain_subject(written)
    has_control = any(unicodedata.category(character) == "Cc" for character in subject)
    has_context = subject.startswith((":.", ":*:"))
    is_long = len(subject) > SUBJECT_CHARS_MAX
    if not subject or has_control or has_context or is_long or subject in RESERVED:
        raise Rejected(
            Number.INVALID_SUBJECT, f"The specified subject '{subject[:200]}' is not a valid."
        )
    return subject


def plain_subject(written: str) -> str:
    """Without the name of the default context."""
    return written.removeprefix(DEFAULT_CONTEXT)


def read_version(written: str) -> int:
    if written in ("latest", "-1"):
        return LATEST
    is_number = written.isascii() and written.isdigit() and len(written) <= DIGITS_MAX
    if not is_number or not 1 <= int(written) <= VERSION_MAX:
        raise Rejected(
            Number.INVALID_VERSION,
            f"The specified version '{written[:80]}' is not a valid version id. Allowed values "
            'are between [1, 2^31-1] and the string "latest"',
        )
    return int(written)
