"""Makes instances of any declared message at any version, from a seeded generator.

Values lean towards what breaks codecs: zero, minus one, the ends of each range, null where null is
allowed, lengths around 127 where a varint grows by a byte, tagged fields both absent and present.
"""

import random
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.wire.messages import REQUESTS, RESPONSES
from penstock.wire.schema import FIXED, Field, wire_of

INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TIME_MS_MAX = 4_102_444_800_000
ERROR_CODES = [int(code) for code in ErrorCode if code <= ErrorCode.REBOOTSTRAP_REQUIRED]
ALPHABET = "abcXYZ-._0189 é✓🦆"

MESSAGES: list[tuple[type[Any], int]] = [
    (declared, version)
    for table in (REQUESTS, RESPONSES)
    for declared in table.values()
    for version in range(wire_of(declared).versions[0], wire_of(declared).versions[1] + 1)
]


def make(rng: random.Random, declared: type[Any], version: int) -> Any:
    """One instance whose fields outside `version` hold what a reader would give them."""
    return declared(
        **{
            field.name: _field(rng, field, version) if field.is_in(version) else field.absent()
            for field in wire_of(declared).fields
        }
    )


def _field(rng: random.Random, field: Field, version: int) -> Any:
    if field.is_tagged(version):
        if rng.random() < 0.5:
            return field.absent()
        if field.kind == "nested":
            return _unlike_default(rng, field, version)
    elif field.is_nullable(version) and rng.random() < 0.3:
        return None
    return _value(rng, field, version)


def _unlike_default(rng: random.Random, field: Field, version: int) -> Any:
    """A tagged struct that has something to say: one that is all defaults may be left out."""
    assert isinstance(field.of, type)
    inner = wire_of(field.of).fields[0]
    while True:
        made = make(rng, field.of, version)
        if getattr(made, inner.name) != inner.absent():
            return made


def _value(rng: random.Random, field: Field, version: int) -> Any:
    kind = field.kind
    if kind == "array":
        return _array(rng, field, version)
    if kind == "nested":
        assert isinstance(field.of, type)
        return make(rng, field.of, version)
    if kind in INT_BITS:
        return _integer(rng, field)
    match kind:
        case "uint16":
            return rng.choice([0, 1, 0x7FFF, 0x8000, 0xFFFF])
        case "float64":
            return rng.choice([0.0, -1.5, 1e300, rng.random()])
        case "boolean":
            return rng.random() < 0.5
        case "uuid":
            return rng.choice([bytes(16), rng.randbytes(16)])
        case "string":
            return _text(rng)
        case "bytes":
            return rng.randbytes(rng.choice([0, 1, 5, 126, 127, 128, 300]))
        case "records":
            return rng.randbytes(rng.choice([0, 1, 61, 126, 127, 20_000]))
    raise AssertionError(kind)


def _integer(rng: random.Random, field: Field) -> int:
    if field.name.endswith("error_code"):
        return rng.choice(ERROR_CODES)
    if field.kind == "int64" and field.name.endswith(("_ms", "timestamp")):
        # The oracle turns these into dates, which do not reach as far as 64 bits do.
        return rng.choice([0, 1, TIME_MS_MAX, rng.randrange(TIME_MS_MAX)])
    top = 1 << (INT_BITS[field.kind] - 1)
    return rng.choice([0, 1, -1, -top, top - 1, rng.randrange(-top, top)])


def _text(rng: random.Random) -> str:
    length = rng.choice([0, 1, 3, 20, 126, 127, 128])
    letters = ALPHABET if rng.random() < 0.5 else "t"
    return "".join(rng.choice(letters) for _ in range(length))


def _array(rng: random.Random, field: Field, version: int) -> list[Any]:
    if isinstance(field.of, Field):
        length = rng.choice([0, 1, 2, 130]) if field.of.kind in FIXED else rng.choice([0, 1, 3])
        return [_value(rng, field.of, version) for _ in range(length)]
    assert field.of is not None
    return [make(rng, field.of, version) for _ in range(rng.choice([0, 1, 1, 2]))]
