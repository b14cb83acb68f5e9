"""Declaration of Kafka messages: a small typed class, one field specifier per attribute.

    @message(key=12, versions=(0, 4), flexible=4)
    class HeartbeatRequest:
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string(since=3, nullable=3, default=None)

Owns the form of the declarations: the specifiers, the decorators that turn a class body into a
slotted class with a constructor, and the description (`WIRE`) from which `codec` derives the bytes.

Invariants:
- Fields are declared in wire order; tagged fields have no place in that order and come last.
- A field without `default=` is a required argument. Constructors take keywords; classes of the hot
  path are declared `kw_only=False`, because positional construction is three times cheaper. There,
  as in any signature, no required field may follow a defaulted one.
- A field that a version does not carry reads as its default, or as the zero of its kind.
- A tagged struct has no zero value here: it is `None` when it was not sent (Kafka uses a struct
  with all defaults, which means the same at the cost of an allocation).
- `uuid` is sixteen bytes. `records` is a memoryview into the frame when read, and any buffer or
  list of buffers when written. Arrays are lists when read, any sequence when written.
- Defaults are shared between instances, so they are immutable: `()` and never a list.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, cast, dataclass_transform

from penstock.base.ids import NO_TOPIC_ID
from penstock.base.ports import Buffer, Slice

T = TypeVar("T")

Records: TypeAlias = Buffer | Slice | list[Buffer]
"""Value of a records field: one memoryview when read; any buffer or buffers, or an unread slice of
a file, when written."""


class _Required:
    """Marker for a field without a default."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()

# struct format and size of each fixed-width kind.
FIXED: Final[dict[str, tuple[str, int]]] = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "float64": ("d", 8),
    "boolean": ("?", 1),
    "uuid": ("16s", 16),
}

ZERO: Final[dict[str, object]] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 0.0,
    "boolean": False,
    "uuid": NO_TOPIC_ID,
    "string": "",
    "bytes": b"",
    "records": None,
    "array": (),
    "nested": None,
}


@dataclass(frozen=True, slots=True)
class Field:
    """Declared attribute: its kind, the versions that carry it, null and default."""

    kind: str
    name: str = ""
    of: "type[Any] | Field | None" = None
    """Element of an array (a struct, or an unnamed field), or struct of a nested field."""
    since: int = 0
    until: int | None = None
    nullable: int | None = None
    """First version in which null may be sent; None means never."""
    default: object = REQUIRED
    tag: int | None = None
    tag_since: int = 0

    def is_in(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version >= self.nullable

    def absent(self) -> object:
        """Value of the attribute when the bytes do not carry it."""
        if self.default is not REQUIRED:
            return self.default
        return None if self.nullable is not None else ZERO[self.kind]


@dataclass(frozen=True, slots=True)
class Wire:
    """Description of a class by `@message` or `@struct`; `key` is -1 for structs."""

    name: str
    key: int
    versions: tuple[int, int]
    flexible: int | None
    fields: tuple[Field, ...]

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


def wire_of(declared: type[Any]) -> Wire:
    """Description of a declared class: its `WIRE`, typed for the type checker."""
    return cast("Wire", declared.WIRE)


class Options(TypedDict, total=False):
    """Options of every specifier besides its kind."""

    since: int
    until: int
    nullable: int | bool
    default: object
    tag: int
    tag_since: int


def _field(
    kind: str,
    of: "type[Any] | Field | None" = None,
    *,
    since: int = 0,
    until: int | None = None,
    nullable: int | bool | None = None,
    default: object = REQUIRED,
    tag: int | None = None,
    tag_since: int | None = None,
) -> Any:
    null_since: int | None
    if nullable is None or nullable is False:
        null_since = None
    else:
        null_since = since if nullable is True else nullable
    if tag is not None and default is REQUIRED:
        default = ZERO[kind]
    tagged_since = since if tag_since is None else tag_since
    return Field(kind, "", of, since, until, null_since, default, tag, tagged_since)


def int8(**options: Unpack[Options]) -> Any:
    return _field("int8", **options)


def int16(**options: Unpack[Options]) -> Any:
    return _field("int16", **options)


def int32(**options: Unpack[Options]) -> Any:
    return _field("int32", **options)


def int64(**options: Unpack[Options]) -> Any:
    return _field("int64", **options)


def uint16(**options: Unpack[Options]) -> Any:
    return _field("uint16", **options)


def float64(**options: Unpack[Options]) -> Any:
    return _field("float64", **options)


def boolean(**options: Unpack[Options]) -> Any:
    return _field("boolean", **options)


def uuid(**options: Unpack[Options]) -> Any:
    return _field("uuid", **options)


def string(**options: Unpack[Options]) -> Any:
    return _field("string", **options)


def bytes_(**options: Unpack[Options]) -> Any:
    return _field("bytes", **options)


def records(**options: Unpack[Options]) -> Any:
    return _field("records", **options)


def nested(of: type[Any], **options: Unpack[Options]) -> Any:
    """Nested struct."""
    return _field("nested", of, **options)


def array(of: type[Any] | Callable[..., Any], **options: Unpack[Options]) -> Any:
    """Array of a struct, or of a plain kind: `array(int32)`."""
    element: type[Any] | Field = of if isinstance(of, type) else of()
    return _field("array", element, **options)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8, int16, int32, int64, uint16, float64, boolean, uuid, string, bytes_, records,
        nested, array,
    ),
)  # fmt: skip
def message(
    *, key: int, versions: tuple[int, int], flexible: int | None, kw_only: bool = True
) -> Callable[[type[T]], type[T]]:
    """Declares a request or response; `flexible` is the first version with tagged fields."""

    def declare(body: type[T]) -> type[T]:
        return _declare(body, key, versions, flexible, kw_only)

    return declare


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        int8, int16, int32, int64, uint16, float64, boolean, uuid, string, bytes_, records,
        nested, array,
    ),
)  # fmt: skip
def struct(*, kw_only: bool = True) -> Callable[[type[T]], type[T]]:
    """Declares a part of messages; the enclosing message sets versions and flexibility."""

    def declare(body: type[T]) -> type[T]:
        return _declare(body, -1, (0, 32767), None, kw_only)

    return declare


def _declare(
    body: type[T], key: int, versions: tuple[int, int], flexible: int | None, kw_only: bool
) -> type[T]:
    fields = tuple(
        replace(value, name=name) for name, value in vars(body).items() if isinstance(value, Field)
    )
    assert [field.name for field in fields] == list(body.__annotations__), body
    kept = {
        name: value
        for name, value in vars(body).items()
        if not isinstance(value, Field) and name not in ("__dict__", "__weakref__")
    }
    kept["__slots__"] = tuple(field.name for field in fields)
    kept["__hash__"] = None
    kept["__init__"] = _compile_constructor_on_first_call(kw_only)
    kept["__eq__"] = _equal
    kept["__repr__"] = _show
    kept["WIRE"] = Wire(body.__name__, key, versions, flexible, fields)
    return cast("type[T]", type(body.__name__, (), kept))


def _compile_constructor_on_first_call(kw_only: bool) -> Any:
    """Defers compilation: a process uses a few dozen of several hundred classes, and start-up time
    matters."""

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        declared = type(self)
        declared.__init__ = _constructor(declared.__name__, wire_of(declared).fields, kw_only)
        declared.__init__(self, *args, **values)

    return __init__


def _constructor(name: str, fields: tuple[Field, ...], kw_only: bool) -> Any:
    """Generates a plain `__init__`: one assignment per field."""
    namespace: dict[str, object] = {}
    signature = ["self"]
    if kw_only and fields:
        signature.append("*")
    for field in fields:
        if field.default is REQUIRED:
            signature.append(field.name)
        else:
            namespace[f"default_{field.name}"] = field.default
            signature.append(f"{field.name}=default_{field.name}")
    body = "\n".join(f"    self.{field.name} = {field.name}" for field in fields) or "    pass"
    text = f"def __init__({', '.join(signature)}):\n{body}\n"
    # The source is generated from our own declarations' field names, never from a peer's bytes.
    exec(compile(text, f"<constructor of {name}>", "exec"), namespace)  # noqa: S102
    return namespace["__init__"]


def _equal(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(_plain(getattr(self, n)) == _plain(getattr(other, n)) for n in self.__slots__)


def _plain(value: object) -> object:
    """Arrays compare by content: a list that was read equals the tuple that was written."""
    return list(value) if isinstance(value, tuple) else value


def _show(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({shown})"
