"""SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677): stored credentials, and the exchange.

Neither a password nor anything that reveals it is stored: only salt, iterations, StoredKey and
ServerKey. An unknown user gets the same challenge as a known one, with a salt derived from the
name and a secret of this node, so that clients cannot learn which names exist.

Pure: nonces and salts are parameters. Names and passwords are compared as received, without
SASLprep, as in Kafka.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
ITERATIONS = 8192
MESSAGE_BYTES_MAX = 4096
MECHANISMS = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by the numbers of Kafka's admin APIs."""
GS2 = ("n,,", "y,,")
"""Headers without channel binding: not supported by the client, or by the broker as it thinks."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Stored form of a password for one mechanism."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class ScramFailed(Exception):
    """A failed exchange; the text is for our log, the client gets no reason."""


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Salted password; takes milliseconds, on purpose."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    name = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return Credential(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", name))


def verifies(mechanism: str, credential: Credential, password: str) -> bool:
    """True if this is the password; for endpoints that receive it in plain text."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def invented(mechanism: str, name: str, secret: bytes) -> Credential:
    """Credential for an unknown user: stable for a name, and matched by no password."""
    algorithm = MECHANISMS[mechanism]
    salt = hmac.digest(secret, b"salt:" + name.encode(), algorithm)[:16]
    return Credential(salt, ITERATIONS, b"", hmac.digest(secret, name.encode(), algorithm))


class ServerExchange:
    """Broker's side: `first` answers the client's first message, `final` its second."""

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], Credential | None],
        secret: bytes,
        nonce: str,
    ) -> None:
        """`nonce` is fresh for each exchange; `secret` is this node's, see `invented`."""
        self._mechanism = mechanism
        self._algorithm = MECHANISMS[mechanism]
        self._find = find
        self._secret = secret
        self._nonce = nonce
        self._credential: Credential | None = None
        self._binding = ""
        self._signed = ""
        self.name = ""
        """Name claimed by the client; authenticated once `final` has returned."""

    def first(self, message: bytes) -> bytes:
        text = _text(message)
        header = next((gs2 for gs2 in GS2 if text.startswith(gs2)), None)
        if header is None:
            raise ScramFailed("channel binding or an authorization id is not supported")
        bare = text[len(header) :]
        fields = _fields(bare)
        if "m" in fields:
            raise ScramFailed("mandatory extensions are not supported")
        if list(fields)[:2] != ["n", "r"] or not fields["n"] or not fields["r"]:
            raise ScramFailed("the first message has no name or no nonce")
        self.name = _unescaped(fields["n"])
        self._credential = self._find(self.name)
        asked = self._credential or invented(self._mechanism, self.name, self._secret)
        self._binding = header
        self._nonce = fields["r"] + self._nonce
        salt = base64.b64encode(asked.salt).decode()
        reply = f"r={self._nonce},s={salt},i={asked.iterations}"
        self._signed = f"{bare},{reply}"
        return reply.encode()

    def final(self, message: bytes) -> bytes:
        text = _text(message)
        unproven, _, proof_field = text.rpartition(",p=")
        fields = _fields(unproven)
        if list(fields)[:2] != ["c", "r"]:
            raise ScramFailed("the final message has no binding or no nonce")
        if _decoded(fields["c"]) != self._binding.encode():
            raise ScramFailed("the channel binding has changed")
        if not hmac.compare_digest(fields["r"].encode(), self._nonce.encode()):
            raise ScramFailed("the nonce has changed")
        credential = self._credential
        if credential is None:
            raise ScramFailed(f"unknown user {self.name!r} for {self._mechanism}")
        signed = f"{self._signed},{unproven}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._algorithm)
        proof = _decoded(proof_field)
        if len(proof) != len(signature):
            raise ScramFailed("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        found = hashlib.new(self._algorithm, client_key).digest()
        if not hmac.compare_digest(found, credential.stored_key):
            raise ScramFailed(f"wrong password of user {self.name!r}")
        verifier = hmac.digest(credential.server_key, signed, self._algorithm)
        return b"v=" + base64.b64encode(verifier)


class ClientExchange:
    """Client's side; it also verifies that the broker knows the password."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._algorithm = MECHANISMS[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(name)},r={nonce}"
        self._verifier = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        text = _text(challenge)
        fields = _fields(text)
        if list(fields)[:3] != ["r", "s", "i"] or not fields["r"].startswith(self._nonce):
            raise ScramFailed("invalid challenge from the broker")
        iterations = int(fields["i"]) if fields["i"].isdecimal() else 0
        if not ITERATIONS_MIN <= iterations <= 10 * ITERATIONS_MAX:
            raise ScramFailed(
                f"the broker requires {fields['i']} iterations: "
                f"must be from {ITERATIONS_MIN} to {10 * ITERATIONS_MAX}"
            )
        salt = _decoded(fields["s"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        unproven = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
        signed = f"{self._bare},{text},{unproven}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._algorithm)
        credential = credential_of(self._mechanism, salted, salt, iterations)
        signature = hmac.digest(credential.stored_key, signed, self._algorithm)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(credential.server_key, signed, self._algorithm)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, outcome: bytes) -> None:
        """Raises ScramFailed unless the broker has proved that it knows the password."""
        verifier = _fields(_text(outcome)).get("v", "")
        if not self._verifier or not hmac.compare_digest(_decoded(verifier), self._verifier):
            raise ScramFailed("the broker does not know the password: check its address")


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramFailed(f"message of {len(message)} bytes: at most {MESSAGE_BYTES_MAX}")
    try:
        return message.decode()
    except UnicodeDecodeError as error:
        raise ScramFailed("a message is not UTF-8") from error


def _fields(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if len(name) != 1 or not equals or name in fields:
            raise ScramFailed("a message is malformed")
        fields[name] = value
    return fields


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ScramFailed("a field is not valid base64") from error


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    if name.replace("=2C", "").replace("=3D", "").count("="):
        raise ScramFailed("a name has an invalid escape: only =2C and =3D are allowed")
    return name.replace("=2C", ",").replace("=3D", "=")
