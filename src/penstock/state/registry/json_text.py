"""JSON texts of schemas, with errors as rejections and the order of keys kept."""

from typing import Any

import msgspec

from penstock.state.registry.errors import invalid


def read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise invalid(f"it is no JSON: {error}") from None
    except RecursionError:
        raise invalid("it is nested too deep") from None


def write_json(value: object) -> str:
    """Without a blank, keys in the order they came in."""
    return msgspec.json.encode(value).decode()


def write_sorted_json(value: object) -> str:
    """Without a blank, keys by name: equal for values that are equal."""
    return msgspec.json.encode(value, order="sorted").decode()
