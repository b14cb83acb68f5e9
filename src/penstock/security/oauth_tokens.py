"""OAuth bearer tokens (OAUTHBEARER, HTTP): JSON Web Tokens signed by a key of a JSON Web Key Set.

joserfc reads tokens and keys, checks signatures and compares claims. Decided here: only signatures
by a public key are accepted (RS, PS and ES with SHA-256, -384, -512), neither `none` nor a secret
shared with clients. A token must have an expiry time. The issuer and the audience are checked where
they are configured. A token cannot name the user of the nodes.

Pure: keys and the time are parameters. joserfc is in the extra `security`, imported with the first
token; without it every token is refused.
"""

import importlib.util
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.base.errors import ErrorCode, Refused, shortened
from penstock.security.acl_types import NODE_USER
from penstock.security.login import AuthenticatedIdentity, LoginFailed

if TYPE_CHECKING:
    from joserfc.jwk import Key
    from joserfc.jws import JWSRegistry

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
CURVES = ("P-256", "P-384", "P-521")
HEADER_BYTES_MAX = 16 * 1024
"""Maximum size of a token's header: some issuers put their certificates there."""
KEYS_MAX = 100
KEY_PARTS = ("kty", "use", "key_ops", "alg", "kid", "n", "e", "crv", "x", "y")
"""Public parts of a key: a private key in the set is not kept."""
MALFORMED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""Errors of joserfc and cryptography, beside JoseError, for input that is not a token or a key."""
NEEDED = "OAUTHBEARER needs the package joserfc: pip install 'penstock-mq[security]'"
RSA_BITS_MIN = 2048
SECONDS_MAX = 253_402_300_799
"""End of the year 9999."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Claims that a token must have beside a valid signature."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    subject_claim: str = "sub"
    skew_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class KeySet:
    """Public keys by their ids."""

    keys: Mapping[str, "Key"] = field(default_factory=dict)


def parse_keys(document: bytes) -> KeySet:
    """Returns the signing keys of a JSON Web Key Set, without unusable ones; raises Refused."""
    if not _is_installed():
        raise Refused(ErrorCode.INVALID_CONFIG, NEEDED)
    try:
        rows = msgspec.json.decode(document)["keys"]
        assert isinstance(rows, list)
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        KeyError,
        TypeError,
        AssertionError,
    ) as error:
        raise Refused(ErrorCode.INVALID_CONFIG, "the document is not a JSON Web Key Set") from error
    keys: dict[str, Key] = {}
    for row in rows[:KEYS_MAX]:
        key = _key(row) if isinstance(row, dict) else None
        if key is not None:
            keys[key.kid or ""] = key
    return KeySet(keys)


def _key(row: Mapping[str, Any]) -> "Key | None":
    from joserfc.errors import JoseError, SecurityWarning
    from joserfc.jwk import ECKey, RSAKey

    public = {name: row[name] for name in KEY_PARTS if name in row}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)  # short keys are left out below
            if public.get("kty") == "RSA":
                key: RSAKey | ECKey = RSAKey.import_key(public)
                is_good = key.raw_value.key_size >= RSA_BITS_MIN
            elif public.get("kty") == "EC":
                key = ECKey.import_key(public)
                is_good = key.curve_name in CURVES
            else:
                return None
        key.check_use("sig")
        key.check_key_op("verify")
    except (JoseError, *MALFORMED):
        return None
    return key if is_good else None


def key_id(token: str) -> str:
    """Returns the id of the key that a token claims to be signed with; raises LoginFailed."""
    return str(_header(token).get("kid", ""))


def verify(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> AuthenticatedIdentity:
    """Returns the user a token was issued for; raises LoginFailed."""
    header = _header(token)
    if header.get("alg") not in ALGORITHMS:
        raise LoginFailed(f"a token is signed with {_shown(header.get('alg'))}")
    if "crit" in header:
        raise LoginFailed("a token has critical extensions, which are not supported")
    key = keys.keys.get(str(header.get("kid", "")))
    if key is None:
        raise LoginFailed(f"unknown signing key {_shown(header.get('kid'))}")
    from joserfc import jwt
    from joserfc.errors import BadSignatureError, JoseError

    try:
        claims = jwt.decode(token, key, registry=_registry()).claims
    except BadSignatureError as error:
        raise LoginFailed("the token's signature does not match its key") from error
    except (JoseError, *MALFORMED) as error:
        raise LoginFailed(f"not a valid token: {error}") from error
    return judge(claims, rules, now_ms)


def judge(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> AuthenticatedIdentity:
    """Returns the user that the claims of a verified token name; raises LoginFailed."""
    from joserfc.errors import ClaimError
    from joserfc.jwt import ClaimsOption, JWTClaimsRegistry

    wanted: dict[str, ClaimsOption] = {"exp": {"essential": True}}
    if rules.issuer is not None:
        wanted["iss"] = {"essential": True, "value": rules.issuer}
    if rules.audiences:
        wanted["aud"] = {"essential": True, "values": list(rules.audiences)}
    now, leeway = now_ms // 1000, rules.skew_ms // 1000
    try:
        JWTClaimsRegistry(now, leeway, **wanted).validate(claims)
    except ClaimError as error:
        found = _shown(claims.get(error.claim))
        raise LoginFailed(f"a token is refused: {error.description} ({found})") from error
    expires, subject = claims["exp"], claims.get(rules.subject_claim)
    if not 0 <= expires <= SECONDS_MAX:
        raise LoginFailed(f"a token is refused: 'exp' is not between 0 and {SECONDS_MAX}")
    if not isinstance(subject, str) or not subject:
        raise LoginFailed(f"a token is refused: {rules.subject_claim!r} does not name a user")
    if subject == NODE_USER:
        raise LoginFailed(f"a token is refused: {NODE_USER} is the user of the nodes")
    return AuthenticatedIdentity(f"User:{subject}", int(expires * 1000))


def _header(token: str) -> Mapping[str, Any]:
    """The header of a token, not verified."""
    if not _is_installed():
        raise LoginFailed(NEEDED)
    from joserfc.errors import JoseError
    from joserfc.jws import extract_compact

    try:
        header: object = extract_compact(token.encode("ascii"), registry=_registry()).headers()
    except (JoseError, *MALFORMED) as error:
        raise LoginFailed("the token is not a signed JWT (JWS)") from error
    if not isinstance(header, dict):
        raise LoginFailed("the header of a token is not an object")
    return header


def _shown(value: object) -> str:
    return shortened(repr(value))


def _is_installed() -> bool:
    return importlib.util.find_spec("joserfc") is not None


@cache
def _registry() -> "JWSRegistry":
    from joserfc.jws import JWSRegistry

    # Header parameters that joserfc does not know do not matter: none of them is critical.
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = HEADER_BYTES_MAX
    return registry
