"""Pagination of long lists: a token names the item after which the next page starts."""

import base64
import binascii

from penstock.gateway.sqs.errors import invalid

PAGE_MAX = 1_000


def page(
    names: list[str], most: int | None, token: str | None, *, page_max: int = PAGE_MAX
) -> tuple[list[str], str | None]:
    """Returns a page of sorted names, and the token of the next page, if any."""
    if most is not None and not 1 <= most <= page_max:
        raise invalid("MaxResults", most, f"Must be between 1 and {page_max}, if provided.")
    size = most or page_max
    if token:
        after = _read(token)
        names = [name for name in names if name > after]
    shown = names[:size]
    if len(names) <= size:
        return shown, None
    return shown, base64.urlsafe_b64encode(shown[-1].encode()).decode()


def _read(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode("ascii")).decode()
    except (binascii.Error, ValueError) as error:
        raise invalid("NextToken", token, "It must come from an earlier response.") from error
