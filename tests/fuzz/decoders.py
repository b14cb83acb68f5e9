"""Every decoder of bytes from outside, as a function that returns or raises an expected error.

Any other error (a KeyError, a RecursionError, an OverflowError) is a bug: its caller does not catch
it. `TARGETS` is the table; `seeds` gives each some inputs to begin with. `test_decoders` runs all
of them for a moment, `make fuzz` for as long as one likes (`guided`).
"""

import base64
import contextlib
import json
import random
import struct
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any

import msgspec
from joserfc import jwk, jws
from starlette.exceptions import HTTPException

from penstock.base.errors import Corrupt, PeerError, Refused
from penstock.cluster.metadata.store_keys import AccessKeyRecord, UserRecord
from penstock.gateway.core.receipts import Receipts
from penstock.gateway.http.forwarded import ForwardedFor, read_networks
from penstock.gateway.http.request_io import parse_json
from penstock.gateway.registry.request import ModeBody, SchemaBody, read_body, read_config
from penstock.gateway.rest.message_json import outgoing_of
from penstock.gateway.rest.route_table import ENDPOINTS
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sns.filter_policies import check_policy, matches_body, read_policy
from penstock.gateway.sqs.actions import SQS_ACTIONS
from penstock.gateway.sqs.endpoint import keys_of
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.protocols import JsonProtocol, QueryProtocol
from penstock.gateway.sqs.queue_attributes import changes_for
from penstock.gateway.sqs.requests import read_request
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, verify
from penstock.security import oauth_tokens, scram
from penstock.security.login import (
    AuthenticatedIdentity,
    BearerExchange,
    LoginFailed,
    PlainExchange,
)
from penstock.security.principal_mapping import parse_rules, principal_of
from penstock.state.queues.state_shard import QueueKey
from penstock.state.registry.formats import parse, unreadable
from penstock.state.registry.parsed_schemas import AVRO, JSON, PROTOBUF, SchemaSource
from penstock.wire import records
from penstock.wire.codec import reader, writer
from penstock.wire.compression import compress, decompress
from penstock.wire.records import Record
from penstock.wire.request_header import read_request_header
from tests.wire.instances import MESSAGES, make

UNPACKED_MAX = 1 << 20
NOW_MS = 1_440_938_160_000
EXPECTED = (
    PeerError,
    Refused,
    Corrupt,
    Fault,
    LoginFailed,
    scram.ScramFailed,
    HTTPException,
)
Target = Callable[[bytes], None]


def take(data: bytes, count: int) -> tuple[int, bytes]:
    """A choice among so many, and what is left."""
    return int.from_bytes(data[:2], "big") % count, data[2:]


def finished(work: Awaitable[Any]) -> Any:
    """Result of a coroutine that never waits."""
    try:
        next(iter(work.__await__()))
    except StopIteration as done:
        return done.value
    raise AssertionError("it waited")


# -- the wire ---------------------------------------------------------------------------------


def header(data: bytes) -> None:
    read_request_header(memoryview(data), 0, len(data))


def message(data: bytes) -> None:
    choice, body = take(data, len(MESSAGES))
    _, position = reader(*MESSAGES[choice])(memoryview(body), 0, len(body))
    assert 0 <= position <= len(body)


def batch(data: bytes) -> None:
    view = memoryview(bytearray(data))
    for position, found in records.batches(view):
        records.check_stored(view[position : position + found.size_bytes])
    columns = records.decode(view, bytes_max=UNPACKED_MAX)
    assert len(columns.payload) <= UNPACKED_MAX
    records.check_batch(view)


def sealed_batch(data: bytes) -> None:
    """As `batch`, behind a header that is right: so that what is inside gets read."""
    choice, body = take(data, 5)
    count = int.from_bytes(body[:1], "big")
    head = struct.pack(">hiqqqhii", choice, count, 0, 0, -1, -1, -1, count)
    whole = struct.pack(">qiiBI", 0, 9 + len(head) + len(body), -1, 2, 0) + head + body[1:]
    view = memoryview(bytearray(whole))
    struct.pack_into(">i", view, 8, len(whole) - 12)
    columns = records.decode(view, bytes_max=UNPACKED_MAX)
    assert len(columns.payload) <= UNPACKED_MAX


def codec(data: bytes) -> None:
    choice, body = take(data, 5)
    assert len(decompress(choice, body, UNPACKED_MAX)) <= max(UNPACKED_MAX, len(body))


# -- logins -----------------------------------------------------------------------------------


def scram_server(data: bytes) -> None:
    known = scram.Credential(b"salt", 4096, b"stored", b"server")
    exchange = scram.ServerExchange("SCRAM-SHA-256", {"bob": known}.get, b"secret", "nonce")
    first, _, final = data.partition(b"\n")
    exchange.first(first)
    exchange.final(final)


def scram_client(data: bytes) -> None:
    challenge, _, outcome = data.partition(b"\n")
    # Deliberately slow inputs are excluded.
    if b"i=4096" in challenge or b",i=" not in challenge:
        exchange = scram.ClientExchange("SCRAM-SHA-256", "bob", "secret", "nonce")
        exchange.final(challenge)
        exchange.verify(outcome)


async def _no(name: str, password: str, peer: str) -> bool:
    return False


async def _judged(token: str) -> AuthenticatedIdentity:
    return oauth_tokens.verify(token, _keys(), _rules(), NOW_MS)


def plain(data: bytes) -> None:
    finished(PlainExchange(_no).step(data, "192.0.2.1"))


def bearer(data: bytes) -> None:
    finished(BearerExchange(_judged).step(data, "192.0.2.1"))


def claims(data: bytes) -> None:
    """A token with a valid signature: its issuer may write anything, too."""
    token = jws.serialize_compact({"alg": "ES256", "kid": "two"}, data, _private_key())
    oauth_tokens.verify(token, _keys(), _rules(), NOW_MS)


def key_set(data: bytes) -> None:
    oauth_tokens.parse_keys(data)


def _rules() -> oauth_tokens.TokenRules:
    return oauth_tokens.TokenRules("issuer", ("audience",))


@cache
def _keys() -> oauth_tokens.KeySet:
    numbers = {"kty": "RSA", "kid": "one", "e": "AQAB", "n": _base64((1 << 2047) + 1)}
    own = _private_key().as_dict(private=False)
    return oauth_tokens.parse_keys(json.dumps({"keys": [numbers, own]}).encode())


@cache
def _private_key() -> jwk.ECKey:
    return jwk.ECKey.generate_key("P-256", {"kid": "two"})


def _base64(number: int) -> str:
    size = (number.bit_length() + 7) // 8
    return base64.urlsafe_b64encode(number.to_bytes(size, "big")).rstrip(b"=").decode()


def mapping(data: bytes) -> None:
    rules, _, name = data.decode("utf-8", "replace").partition("\n")
    principal_of(parse_rules(rules), name)


# -- HTTP -------------------------------------------------------------------------------------

BODIES = [row.body for row in ENDPOINTS if row.body is not None]


def body(data: bytes) -> None:
    choice, text = take(data, len(BODIES))
    found = parse_json(text, BODIES[choice])
    if hasattr(found, "payload_base64") and hasattr(found, "headers"):
        outgoing_of(found, None)


def signature(data: bytes) -> None:
    head, _, rest = data.partition(b"\n\n")
    lines = head.decode("latin-1").split("\n")
    path, _, query = lines[0].partition("?")
    pairs = [line.partition(":") for line in lines[1:]]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    request = SignedRequest("POST", path.encode("latin-1"), query.encode("latin-1"), headers, rest)
    keys = keys_of({"bob": UserRecord({}, {"KEY": AccessKeyRecord("secret", 0)})}, {})
    verify(request, claim_of(request), keys.secrets, NOW_MS)


def sqs_json(data: bytes) -> None:
    choice, text = take(data, len(SQS_ACTIONS))
    name = sorted(SQS_ACTIONS)[choice]
    asked = JsonProtocol(f"AmazonSQS.{name}", "id").read(text)
    read_request(asked.action.request, asked.values)


def aws_form(data: bytes) -> None:
    protocol = QueryProtocol("id")
    try:
        asked = protocol.read(data)
        read_request(asked.action.request, asked.values)
    except Fault as fault:
        protocol.error(fault)


def filter_policy(data: bytes) -> None:
    policy, _, text = data.decode("utf-8", "replace").partition("\n")
    check_policy(policy, is_of_body=True)
    matches_body(read_policy(policy), text)


def queue_policies(data: bytes) -> None:
    choice, text = take(data, 2)
    name = ("RedrivePolicy", "RedriveAllowPolicy")[choice]
    changes_for("queue", {name: text.decode("utf-8", "replace")})


def receipt(data: bytes) -> None:
    Receipts("cluster").read(data.decode("utf-8", "replace"))


def forwarded(data: bytes) -> None:
    scope = {
        "type": "http",
        "client": ("10.0.0.1", 1),
        "headers": [(b"x-forwarded-for", line) for line in data.split(b"\n")],
    }
    assert ForwardedFor(_nowhere, read_networks(["10.0.0.0/8"])).address(scope)


async def _nowhere(*args: object) -> None:
    raise AssertionError


# -- the registry -----------------------------------------------------------------------------


def _schema(kind: str) -> Target:
    def target(data: bytes) -> None:
        first, _, second = data.decode("utf-8", "replace").partition("\n\n\n")
        one = parse(SchemaSource(kind, first))
        unreadable(one, parse(SchemaSource(kind, second)) if second else one)

    return target


def registry_body(data: bytes) -> None:
    choice, text = take(data, 3)
    if choice == 0:
        read_config(text)
    else:
        read_body(text, SchemaBody if choice == 1 else ModeBody)


TARGETS: dict[str, Target] = {
    "header": header,
    "message": message,
    "batch": batch,
    "sealed_batch": sealed_batch,
    "codec": codec,
    "scram_server": scram_server,
    "scram_client": scram_client,
    "plain": plain,
    "bearer": bearer,
    "claims": claims,
    "key_set": key_set,
    "mapping": mapping,
    "body": body,
    "signature": signature,
    "sqs_json": sqs_json,
    "aws_form": aws_form,
    "filter_policy": filter_policy,
    "queue_policies": queue_policies,
    "receipt": receipt,
    "forwarded": forwarded,
    "avro": _schema(AVRO),
    "json_schema": _schema(JSON),
    "protobuf": _schema(PROTOBUF),
    "registry_body": registry_body,
}


def run(name: str, data: bytes) -> None:
    """Raises only what is a bug."""
    with contextlib.suppress(*EXPECTED):
        TARGETS[name](data)


# -- where each begins ------------------------------------------------------------------------


def seeds(name: str) -> Iterator[bytes]:
    yield b""
    yield from _SEEDS.get(name, lambda: iter(()))()


def _messages() -> Iterator[bytes]:
    for choice in range(0, len(MESSAGES), 5):
        parts: list[Any] = []
        declared, version = MESSAGES[choice]
        writer(declared, version)(make(random.Random(choice), declared, version), parts)
        yield struct.pack(">H", choice) + b"".join(parts)


def _batches() -> Iterator[bytes]:
    rows = [Record(n, 1_000 + n, b"key", b"value" * 10, (("h", b"v"),)) for n in range(3)]
    for kind in range(5):
        yield bytes(records.encode(rows, codec=kind))


def _packed() -> Iterator[bytes]:
    for kind in range(5):
        yield struct.pack(">H", kind) + compress(kind, b"hello" * 50)


def _tokens() -> Iterator[bytes]:
    head = {"alg": "RS256", "kid": "one"}
    parts = [json.dumps(part).encode() for part in (head, {"sub": "bob", "exp": 1})]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in [*parts, b"x" * 256])
    yield b"n,,\x01auth=Bearer " + text + b"\x01\x01"


def _claims() -> Iterator[bytes]:
    for aud in ("audience", ["audience"], 5, {"a": 1}):
        yield json.dumps({"sub": "bob", "exp": 2e9, "nbf": 0, "iss": "issuer", "aud": aud}).encode()


def _bodies() -> Iterator[bytes]:
    samples: list[Any] = [
        {"payload": {"a": [1]}, "key": "k", "headers": {"h": ["v", {"base64": "AA=="}]}},
        {"messages": [{"payload_base64": "AA==", "delay_ms": 1}]},
        {"receipts": ["a"], "error": "x"},
        {"group": "g", "offsets": [{"topic": "t", "partition": 0, "offset": 1}]},
    ]
    for choice in range(len(BODIES)):
        for sample in samples:
            yield struct.pack(">H", choice) + json.dumps(sample).encode()


def _signatures() -> Iterator[bytes]:
    scope = "KEY/20150830/us-east-1/sqs/aws4_request"
    yield (
        f"/a%2Fb/../c?x=1&y=%20\nhost:h\nx-amz-date:20150830T123600Z\n"
        f"authorization:AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host;x-amz-date, "
        f"Signature={'0' * 64}\n\nbody"
    ).encode()
    yield (
        f"/?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}&X-Amz-Expires=60"
        f"&X-Amz-Date=20150830T123600Z&X-Amz-SignedHeaders=host&X-Amz-Signature=0\nhost:h\n\n"
    ).encode()


def _actions() -> Iterator[bytes]:
    sample = {"QueueUrl": "http://h/000000000000/q", "Entries": [{"Id": "a", "MessageBody": "x"}]}
    for choice in range(len(SQS_ACTIONS)):
        yield struct.pack(">H", choice) + json.dumps(sample).encode()


def _forms() -> Iterator[bytes]:
    for name in (*SQS_ACTIONS, *SNS_ACTIONS):
        yield (
            f"Action={name}&Version=2010-03-31&TopicArn=arn:aws:sns:r:000000000000:t"
            "&MessageAttributes.entry.1.Name=a&MessageAttributes.entry.1.Value.DataType=String"
            "&Tags.member.1.Key=a&Tags.member.1.Value=b"
        ).encode()


def _receipts() -> Iterator[bytes]:
    yield Receipts("cluster").write(QueueKey("g", b"t" * 16, 1), "m" * 12, 7).encode()


RECORD = {
    "type": "record",
    "name": "a.B",
    "fields": [{"name": "x", "type": ["null", {"type": "map", "values": "B"}], "default": None}],
}
SHAPE = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/d"}, "b": {"type": ["string", "null"], "pattern": "^x"}},
    "$defs": {"d": {"oneOf": [{"const": 1}, {"type": "array", "items": {"$ref": "#"}}]}},
    "additionalProperties": False,
}
PROTO = """syntax = "proto3"; package a.b; import "google/protobuf/timestamp.proto";
message M { reserved 5 to 7; oneof o { string s = 1; M m = 2; } map<string, E> e = 3;
  google.protobuf.Timestamp t = 4 [deprecated = true]; } enum E { Z = 0; }"""

_SEEDS: dict[str, Callable[[], Iterator[bytes]]] = {
    "header": lambda: iter([struct.pack(">hhih", 18, 3, 1, 1) + b"a\x01\x00\x00"]),
    "message": _messages,
    "batch": _batches,
    "sealed_batch": lambda: iter([struct.pack(">HB", 0, 1) + one[61:] for one in _batches()]),
    "codec": _packed,
    "scram_server": lambda: iter([b"n,,n=bob,r=abc\nc=biws,r=abcnonce,p=AAAA"]),
    "scram_client": lambda: iter([b"r=nonceabc,s=c2FsdA==,i=4096\nv=AAAA"]),
    "plain": lambda: iter([b"\0bob\0secret"]),
    "bearer": _tokens,
    "claims": _claims,
    "key_set": lambda: iter([b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}']),
    "mapping": lambda: iter([b"RULE:^CN=(.*?),.*$/$1/L,DEFAULT\nCN=Bob,O=x"]),
    "body": _bodies,
    "signature": _signatures,
    "sqs_json": _actions,
    "aws_form": _forms,
    "filter_policy": lambda: iter([b'{"a": [{"prefix": "x"}, {"numeric": [">", 1]}]}\n{"a": 2}']),
    "queue_policies": lambda: iter(
        [
            b'\0\0{"deadLetterTargetArn": "arn:aws:sqs:r:000000000000:d", "maxReceiveCount": 3}',
            b'\0\1{"redrivePermission": "byQueue", "sourceQueueArns": []}',
        ]
    ),
    "receipt": _receipts,
    "forwarded": lambda: iter([b"1.2.3.4, 10.0.0.7\n::ffff:10.0.0.8"]),
    "avro": lambda: iter([msgspec.json.encode(RECORD), b'"int"\n\n\n["int", "string"]']),
    "json_schema": lambda: iter([msgspec.json.encode(SHAPE), b"true\n\n\n{}"]),
    "protobuf": lambda: iter([PROTO.encode()]),
    "registry_body": lambda: iter([struct.pack(">H", n) + b'{"schema": "x"}' for n in range(3)]),
}
