"""JSON text of schemas: parse errors become rejections, the order of keys is kept."""

from typing import Any

import msgspec

from penstock.state.registry.errors import invalid


def read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid(f"not valid JSON: {error}") from None
    except RecursionError:
        raise invalid("nested too deep") from None


def write_json(value: object) -> str:
    """Compact JSON, keys in their original order."""
    return msgspec.json.encode(value).decode()


def write_sorted_json(value: object) -> str:
    """Compact JSON, keys sorted: equal text for equal values."""
    return msgspec.json.encode(value, order="sorted").decode()
