"""`penstock.log.index_files`."""

import pytest

from penstock.log.index_files import OFFSET_KINDS, TIME_KINDS, Index, decode


def index_of(*pairs: tuple[int, int], kinds: tuple[str, str] = OFFSET_KINDS) -> Index:
    index = Index(kinds)
    for key, value in pairs:
        index.append(key, value)
    return index


def test_floor_is_the_last_entry_at_or_below_the_key() -> None:
    index = index_of((10, 100), (20, 200))
    assert [index.floor(key) for key in (0, 9, 10, 19, 20, 99)] == [0, 0, 100, 100, 200, 200]


def test_index_comes_back_from_its_bytes() -> None:
    index = index_of((5, 1), (2**40, 7), kinds=TIME_KINDS)
    decoded = decode(index.encode(4711), TIME_KINDS)
    assert decoded is not None
    back, covered = decoded
    assert covered == 4711
    assert (list(back.keys), list(back.values)) == ([5, 2**40], [1, 7])


@pytest.mark.parametrize("cut", [1, 8, 15, 17])
def test_short_index_is_in_doubt(cut: int) -> None:
    body = index_of((1, 1), (2, 2)).encode(10)
    assert decode(body[:-cut], OFFSET_KINDS) is None


def test_index_of_another_kind_is_in_doubt() -> None:
    assert decode(index_of((1, 1)).encode(10), TIME_KINDS) is None


def test_keys_that_do_not_rise_are_in_doubt() -> None:
    assert decode(index_of((2, 1), (2, 2)).encode(10), OFFSET_KINDS) is None


def test_count_that_does_not_fit_the_bytes_is_in_doubt() -> None:
    body = bytearray(index_of((1, 1)).encode(10))
    body[4:8] = (2**32 - 1).to_bytes(4, "little")
    assert decode(bytes(body), OFFSET_KINDS) is None
