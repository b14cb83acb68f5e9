"""Schema registry client, and Pydantic models as JSON schemas.

    registry = Registry("http://localhost:8080")
    registry.register_model(Order, topic="orders")
    payload = registry.encode(order, topic="orders")       # with the schema's id in front
    order = registry.decode(payload, Order)

A model is registered as a closed object, which has its fields and no others, however the model
treats extra fields when it reads. So a field with a default may be added later (BACKWARD), which
Confluent's rules do not allow for an open object. `closed=False` registers Pydantic's own schema.

Works with any registry that speaks Confluent's REST API. Calls block; in asyncio, register before
you start the loop's work, or from a thread.
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from penstock.client.registry_client import Registered, RegistryApi
from penstock.runtime.http_request import ask_web
from penstock.state.registry.json_text import write_json
from penstock.state.registry.parsed_schemas import AVRO, JSON, Reference
from penstock.state.registry.subject_names import Strategy, subject_of

MAGIC = b"\0"
PREFIX_BYTES = 5
ENCODED_MAX = 1_000
"""Maximum schema ids that one registry client caches; the cache is cleared beyond it."""


class Model(Protocol):
    """Pydantic model, version 2: the methods used here."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Any: ...

    def model_dump_json(self) -> str: ...


M = TypeVar("M", bound=Model)


class _Compatibility(msgspec.Struct):
    is_compatible: bool
    messages: list[str] = []


def schema_of_model(model: type[Model], *, closed: bool = True) -> str:
    """The JSON schema of a Pydantic model; with `closed`, its objects have no other fields."""
    schema = model.model_json_schema()
    if closed:
        for one in (schema, *schema.get("$defs", {}).values()):
            if isinstance(one, dict) and one.get("type") == "object" and "properties" in one:
                one.setdefault("additionalProperties", False)
    return write_json(schema)


class Registry:
    """Client of a schema registry at a URL."""

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str = "",
        token: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._api = RegistryApi(
            ask_web, url, user=user, password=password, token=token, timeout_s=timeout_s
        )
        self._ids: dict[tuple[str, str], Registered] = {}

    # -- schemas ----------------------------------------------------------------------------

    def register(
        self,
        subject: str,
        schema: str,
        schema_type: str = AVRO,
        references: Sequence[Reference] = (),
    ) -> Registered:
        """Registers a schema. Raises Rejected with the registry's error code if it refuses."""
        return self._api.register(subject, schema, schema_type, references)

    def problems(self, subject: str, schema: str, schema_type: str = AVRO) -> list[str]:
        """Lists why the schema could not be registered; empty if it could."""
        path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
        answer = self._api.call("POST", path, {"schema": schema, "schemaType": schema_type})
        answered = msgspec.json.decode(answer, type=_Compatibility)
        return [] if answered.is_compatible else answered.messages or ["schema is not compatible"]

    def schema(self, schema_id: int) -> dict[str, Any]:
        """The schema of an id, as the REST API returns it."""
        answer = self._api.call("GET", f"/schemas/ids/{schema_id}")
        shown: dict[str, Any] = msgspec.json.decode(answer)
        return shown

    # -- Pydantic models --------------------------------------------------------------------

    def register_model(
        self,
        model: type[Model],
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> Registered:
        """Registers a model as the schema of a topic's values, or of its keys."""
        subject = _subject(model, topic, strategy, is_key=is_key)
        return self.register(subject, schema_of_model(model, closed=closed), JSON)

    def model_problems(
        self,
        model: type[Model],
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> list[str]:
        """Lists why the model could not be registered now; for a test in your own suite."""
        subject = _subject(model, topic, strategy, is_key=is_key)
        return self.problems(subject, schema_of_model(model, closed=closed), JSON)

    def encode(
        self,
        value: Model,
        topic: str,
        *,
        is_key: bool = False,
        strategy: Strategy = Strategy.TOPIC,
        closed: bool = True,
    ) -> bytes:
        """Encodes a model as JSON behind its schema's id, in Confluent's wire format.

        Registers the model on first use.
        """
        kind = type(value)
        key = (_subject(kind, topic, strategy, is_key=is_key), f"{kind.__module__}.{kind.__name__}")
        known = self._ids.get(key)
        if known is None:
            known = self.register_model(
                kind, topic, is_key=is_key, strategy=strategy, closed=closed
            )
            if len(self._ids) >= ENCODED_MAX:
                self._ids.clear()
            self._ids[key] = known
        return MAGIC + known.id.to_bytes(4, "big") + value.model_dump_json().encode()

    @staticmethod
    def decode(payload: bytes, model: type[M]) -> M:
        """Decodes a payload of `encode` or of Confluent's JSON serializer."""
        if len(payload) < PREFIX_BYTES or payload[:1] != MAGIC:
            raise ValueError("payload does not begin with a schema id (Confluent wire format)")
        read: M = model.model_validate_json(payload[PREFIX_BYTES:])
        return read


def _subject(model: type[Model], topic: str, strategy: Strategy, *, is_key: bool) -> str:
    name = model.model_json_schema().get("title") if strategy is not Strategy.TOPIC else None
    subject = subject_of(strategy, topic, name, is_key=is_key)
    if subject is None:
        raise ValueError(f"model {model.__name__} has no title; strategy {strategy} needs one")
    return subject
