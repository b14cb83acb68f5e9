"""Subjects, contexts and versions as clients write them.

A context is a registry of its own within the registry: `:.sales:orders-value` is the subject
`orders-value` of the context `.sales`. A subject that says no context is in the default one, `.`,
and is kept without it. What is set for a context is kept under `:.sales:`, which no subject has.
"""

import unicodedata

from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.limits import CONTEXT_CHARS_MAX, SUBJECT_CHARS_MAX
from penstock.state.registry.requests import LATEST

RESERVED = ("__GLOBAL", "__EMPTY")
DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
EVERYWHERE = ":.__GLOBAL:"
"""Scope whose settings count in every context that has nothing set."""
MARKS = (":.", EVERY_CONTEXT)
"""Prefixes of a subject with a context."""
VERSION_MAX = 2**31 - 1
DIGITS_MAX = 10


# -- contexts -----------------------------------------------------------------------------------


def split_subject(subject: str) -> tuple[str, str]:
    """The context, and the name there; `*` stands for every context."""
    if not subject.startswith(MARKS):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def context_of(subject: str | None) -> str:
    return split_subject(subject or "")[0]


def join_subject(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def plain_subject(written: str) -> str:
    """Without the name of the default context."""
    return join_subject(*split_subject(written))


def subject_in(context: str, written: str) -> str:
    """A subject as a request to a context writes it: what names another context stays there."""
    if written.startswith(MARKS):
        return plain_subject(written)
    return join_subject(context, written)


def seen_from(context: str, written: str) -> str:
    """A subject as a schema or a config of a context writes it, which cannot mean the default."""
    own, name = split_subject(written)
    return join_subject(context if own == DEFAULT_CONTEXT else own, name)


def short_for(context: str, subject: str) -> str:
    """Inverse of `seen_from`: the name that it makes the subject of."""
    own, name = split_subject(subject)
    return name if own == context else subject


def read_context(written: str) -> str:
    """`sales`, `.sales` and `:.sales:` are the same one. Raises Rejected for what cannot be one."""
    context = written.removeprefix(":").removesuffix(":")
    if not context.startswith(DEFAULT_CONTEXT):
        context = DEFAULT_CONTEXT + context
    if ":" in context or not _is_sound(context, ""):
        raise Rejected(
            RegistryErrorCode.INVALID_SUBJECT,
            f"'{written[:200]}' is no context: a name has {CONTEXT_CHARS_MAX} characters at most, "
            "none of them a colon or a control character",
        )
    return context


# -- subjects -----------------------------------------------------------------------------------


def check_subject(written: str) -> str:
    """A subject that may be registered."""
    context, name = split_subject(written)
    subject = join_subject(context, name)
    is_fit = name and name not in RESERVED and subject != EVERYWHERE + name
    if not is_fit or not _is_sound(context, name):
        raise Rejected(
            RegistryErrorCode.INVALID_SUBJECT,
            f"The specified subject '{subject[:200]}' is not a valid.",
        )
    return subject


def check_scope(written: str) -> str:
    """Checks the name of a scope, which may have settings: a subject, or a context."""
    context, name = split_subject(written)
    if name or context == DEFAULT_CONTEXT or not _is_sound(context, name):
        return check_subject(written)
    return join_subject(context, name)


def _is_sound(context: str, name: str) -> bool:
    return (
        context.startswith(DEFAULT_CONTEXT)
        and len(context) <= CONTEXT_CHARS_MAX
        and len(name) <= SUBJECT_CHARS_MAX
        and not name.startswith(MARKS)
        and not any(unicodedata.category(one) == "Cc" for one in context + name)
    )


def read_version(written: str) -> int:
    if written in ("latest", "-1"):
        return LATEST
    is_number = written.isascii() and written.isdigit() and len(written) <= DIGITS_MAX
    if not is_number or not 1 <= int(written) <= VERSION_MAX:
        raise Rejected(
            RegistryErrorCode.INVALID_VERSION,
            f"The specified version '{written[:80]}' is not a valid version id. Allowed values "
            'are between [1, 2^31-1] and the string "latest"',
        )
    return int(written)
