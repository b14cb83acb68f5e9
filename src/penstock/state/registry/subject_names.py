"""Subjects, contexts and versions as clients write them.

A context is a separate registry within the registry: `:.sales:orders-value` is the subject
`orders-value` of the context `.sales`. A subject without a context is in the default one, `.`, and
is stored without it. Settings of a context are stored under `:.sales:`, which is not a subject.

Subject naming: the three strategies of Confluent's clients. A topic's
`confluent.value.subject.name.strategy` says which of them its producers use; a strategy may be
written with its Java package.
"""

import unicodedata
from enum import StrEnum

from penstock.state.registry.errors import RegistryErrorCode, Rejected
from penstock.state.registry.limits import CONTEXT_CHARS_MAX, SUBJECT_CHARS_MAX
from penstock.state.registry.requests import LATEST


class Strategy(StrEnum):
    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"


def strategy_of(written: str) -> Strategy | None:
    """Parses a strategy's name; None if it is unknown."""
    name = written.rpartition(".")[2]
    return Strategy(name) if name in set(Strategy) else None


def subject_of(
    strategy: Strategy, topic: str, record_name: str | None, *, is_key: bool
) -> str | None:
    """Subject of a record's schema; None if the strategy needs a record name and it has none."""
    if strategy is Strategy.TOPIC:
        return f"{topic}-{'key' if is_key else 'value'}"
    if record_name is None:
        return None
    return record_name if strategy is Strategy.RECORD else f"{topic}-{record_name}"


RESERVED = ("__GLOBAL", "__EMPTY")
DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
EVERYWHERE = ":.__GLOBAL:"
"""Scope whose settings apply in every context without its own."""
MARKS = (":.", EVERY_CONTEXT)
"""Prefixes of a subject with a context."""
VERSION_MAX = 2**31 - 1
DIGITS_MAX = 10


# -- contexts -----------------------------------------------------------------------------------


def split_subject(subject: str) -> tuple[str, str]:
    """Splits a subject into context and name; `*` stands for every context."""
    if not subject.startswith(MARKS):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def context_of(subject: str | None) -> str:
    return split_subject(subject or "")[0]


def join_subject(context: str, name: str) -> str:
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def plain_subject(written: str) -> str:
    """Removes the default context's prefix."""
    return join_subject(*split_subject(written))


def subject_in(context: str, written: str) -> str:
    """Full subject of a name in a request to a context; an explicit context wins."""
    if written.startswith(MARKS):
        return plain_subject(written)
    return join_subject(context, written)


def seen_from(context: str, written: str) -> str:
    """Full subject of a name in a context's schema or config, which cannot mean the default one."""
    own, name = split_subject(written)
    return join_subject(context if own == DEFAULT_CONTEXT else own, name)


def short_for(context: str, subject: str) -> str:
    """Inverse of `seen_from`: the name by which the context knows the subject."""
    own, name = split_subject(subject)
    return name if own == context else subject


def read_context(written: str) -> str:
    """Parses a context; `sales`, `.sales` and `:.sales:` are equal. Raises Rejected if invalid."""
    context = written.removeprefix(":").removesuffix(":")
    if not context.startswith(DEFAULT_CONTEXT):
        context = DEFAULT_CONTEXT + context
    if ":" in context or not _is_sound(context, ""):
        raise Rejected(
            RegistryErrorCode.INVALID_SUBJECT,
            f"invalid context '{written[:200]}': a name has at most {CONTEXT_CHARS_MAX} "
            "characters, without colons and control characters",
        )
    return context


# -- subjects -----------------------------------------------------------------------------------


def check_subject(written: str) -> str:
    """Returns the subject in its stored form; raises Rejected if it must not be registered."""
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
    """Checks the name of a scope for settings: a subject, or a context."""
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
