"""Tokens of OAUTHBEARER: JSON Web Tokens (RFC 7519), signed by keys of a set (RFC 7517).

Only signatures with a public key count (RS, PS and ES with SHA-256, -384, -512): neither `none` nor
a secret shared with clients. A token must say when it ends; its times are compared with some
allowance for clocks. Who issued it and for whom are checked where that is configured. Nobody is a
node because a token says so.

Pure: keys and the time come in. `cryptography` is loaded when the first key is.
"""

import base64
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.base.errors import ErrorCode, Refused
from penstock.security.acl_types import NODE_USER
from penstock.security.login import AuthenticatedIdentity, LoginFailed

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
KEYS_MAX = 100
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
RSA_BITS_MIN = 2048
SECONDS_MAX = 253_402_300_799
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token has to say beside being signed."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    subject_claim: str = "sub"
    skew_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys by their ids."""

    keys: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    """The kind of key (RSA or the name of a curve), and the key."""


def parse_keys(document: bytes) -> KeySet:
    """The keys of a set that sign; those we cannot use are left out. Raises Refused."""
    if importlib.util.find_spec("cryptography") is None:
        raise Refused(
            ErrorCode.INVALID_CONFIG,
            "OAUTHBEARER needs the package cryptography: pip install 'penstock-mq[security]'",
        )
    try:
        rows = msgspec.json.decode(document)["keys"]
        assert isinstance(rows, list)
    except (*UNREADABLE, KeyError, TypeError, AssertionError) as error:
        raise Refused(
            ErrorCode.INVALID_CONFIG, "the document of keys is not a JSON Web Key Set"
        ) from error
    keys: dict[str, tuple[str, Any]] = {}
    for row in rows[:KEYS_MAX]:
        made = _key(row) if isinstance(row, dict) else None
        if made is not None:
            keys[str(row.get("kid", ""))] = made
    return KeySet(keys)


def _key(row: Mapping[str, Any]) -> tuple[str, Any] | None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if row.get("use", "sig") != "sig":
        return None
    try:
        if row.get("kty") == "RSA":
            numbers = rsa.RSAPublicNumbers(_number(row["e"]), _number(row["n"]))
            key = numbers.public_key()
            return ("RSA", key) if key.key_size >= RSA_BITS_MIN else None
        if row.get("kty") == "EC" and row.get("crv") in CURVES.values():
            curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
            point = ec.EllipticCurvePublicNumbers(
                _number(row["x"]), _number(row["y"]), curves[row["crv"]]
            )
            return row["crv"], point.public_key()
    except (KeyError, ValueError, TypeError):
        return None
    return None


def key_id(token: str) -> str:
    """Which key a token says it is signed with; raises LoginFailed."""
    return str(_header(token).get("kid", ""))


def verify(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> AuthenticatedIdentity:
    """Whom a token is about; raises LoginFailed."""
    header = _header(token)
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS:
        raise LoginFailed(f"a token is signed with {algorithm!r}")
    if "crit" in header:
        raise LoginFailed("a token has extensions that must be understood, and are not")
    kind, key = keys.keys.get(str(header.get("kid", "")), ("", None))
    if key is None:
        raise LoginFailed(f"no key {header.get('kid')!r} is known")
    if kind != CURVES.get(algorithm, "RSA"):
        raise LoginFailed(f"the key {header.get('kid')!r} does not sign with {algorithm}")
    signed, _, signature = token.rpartition(".")
    _check_signature(algorithm, key, signed.encode("ascii"), _bytes(signature))
    return _judge(_object(signed.partition(".")[2]), rules, now_ms)


def _judge(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> AuthenticatedIdentity:
    expires = claims.get("exp")
    if not isinstance(expires, int | float) or isinstance(expires, bool):
        raise LoginFailed("a token does not say when it ends")
    if not 0 <= expires <= SECONDS_MAX:
        raise LoginFailed("a token ends at no time that there is")
    if now_ms >= expires * 1000 + rules.skew_ms:
        raise LoginFailed("a token has expired")
    for name in ("nbf", "iat"):
        begins = claims.get(name)
        if isinstance(begins, int | float) and now_ms < begins * 1000 - rules.skew_ms:
            raise LoginFailed("a token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise LoginFailed(f"a token was issued by {claims.get('iss')!r}")
    given = claims.get("aud", ())
    audiences = given if isinstance(given, list) else [given]
    if rules.audiences and not set(rules.audiences) & {str(each) for each in audiences}:
        raise LoginFailed(f"a token is meant for {given!r}")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject:
        raise LoginFailed(f"a token has no {rules.subject_claim!r}")
    if subject == NODE_USER:
        raise LoginFailed("a token has the name of nodes")
    return AuthenticatedIdentity(f"User:{subject}", int(expires * 1000))


def _check_signature(algorithm: str, key: Any, signed: bytes, signature: bytes) -> None:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, padding, utils

    digests: dict[str, hashes.HashAlgorithm] = {
        "256": hashes.SHA256(),
        "384": hashes.SHA384(),
        "512": hashes.SHA512(),
    }
    digest = digests[algorithm[2:]]
    try:
        if algorithm.startswith("ES"):
            half = len(signature) // 2
            if not half or len(signature) % 2 or half != (key.curve.key_size + 7) // 8:
                raise LoginFailed("a signature has the wrong length")
            pair = (signature[:half], signature[half:])
            encoded = utils.encode_dss_signature(*(int.from_bytes(part, "big") for part in pair))
            key.verify(encoded, signed, ec.ECDSA(digest))
        elif algorithm.startswith("PS"):
            salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
            key.verify(signature, signed, salted, digest)
        else:
            key.verify(signature, signed, padding.PKCS1v15(), digest)
    except InvalidSignature as error:
        raise LoginFailed("a token's signature is wrong") from error


def _header(token: str) -> Mapping[str, Any]:
    if token.count(".") != 2 or not token.isascii():
        raise LoginFailed("not a signed token")
    return _object(token.partition(".")[0])


def _object(text: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(_bytes(text))
    except UNREADABLE as error:
        raise LoginFailed("a part of a token is not JSON") from error
    if not isinstance(found, dict):
        raise LoginFailed("a part of a token is not an object")
    return found


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise LoginFailed("a part of a token is not base64") from error


def _number(text: str) -> int:
    try:
        return int.from_bytes(_bytes(text), "big")
    except LoginFailed as error:
        raise ValueError(str(error)) from error
