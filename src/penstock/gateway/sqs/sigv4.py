"""AWS Signature Version 4: verifies signatures of requests.

Owns the canonical form of a request, the signing key, and the rules of verification. The canonical
form uses the raw path and query; `host` and the date must be signed; the date may be at most five
minutes off; the digest of the body is computed here, not taken from the request; signatures are
compared in constant time. A signature may be in the `Authorization` header or in the query (a
presigned URL, valid for its stated time, at most seven days).

Leaves to the caller: the source of the credentials, and the signer's permissions.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from penstock.gateway.sqs.errors import Fault

ALGORITHM = "AWS4-HMAC-SHA256"
TERMINATOR = "aws4_request"
SKEW_MS_MAX = 5 * 60 * 1000
PRESIGNED_S_MAX = 7 * 24 * 3600
UNRESERVED = "-_.~"
SERVICES = ("sqs", "sns")

Pairs = Sequence[tuple[str, str]]
_FIELD = re.compile(r"\s*(Credential|SignedHeaders|Signature)=([^,\s]+)\s*")


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """Parts of a request that a signature covers, as received."""

    method: str
    path: bytes
    """Percent-encoded."""
    query: bytes
    headers: Pairs
    """Headers in the order received, names in lower case."""
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Claim:
    """Unverified signature of a request."""

    access_key: str
    day: str
    region: str
    service: str
    at: str
    """Time of signing, such as 20150830T123600Z."""
    signed_headers: tuple[str, ...]
    signature: str
    valid_ms: int | None = None
    """Validity of a presigned URL; None for a signature in the header."""

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/{TERMINATOR}"


def claim_of(request: SignedRequest) -> Claim | None:
    """Returns the request's signature; None if it has none. Raises Fault if it is malformed."""
    header = request.header("authorization")
    if header is not None:
        if not header.startswith(ALGORITHM):
            raise Fault("IncompleteSignature", f"Only {ALGORITHM} signatures are supported.")
        found = map(_FIELD.fullmatch, header[len(ALGORITHM) :].split(","))
        fields: dict[str, str] = {match[1]: match[2] for match in found if match}
        return _claim(
            fields.get("Credential", ""),
            request.header("x-amz-date") or "",
            fields.get("SignedHeaders", ""),
            fields.get("Signature", ""),
            None,
        )
    query = {_text(name): _text(value) for name, value in _decoded(request.query)}
    if "X-Amz-Signature" not in query:
        return None
    seconds = query.get("X-Amz-Expires", "")
    if query.get("X-Amz-Algorithm") != ALGORITHM or not _is_count(seconds, PRESIGNED_S_MAX):
        raise Fault("IncompleteSignature", "The presigned URL is incomplete.")
    return _claim(
        query.get("X-Amz-Credential", ""),
        query.get("X-Amz-Date", ""),
        query.get("X-Amz-SignedHeaders", ""),
        query["X-Amz-Signature"],
        int(seconds) * 1000,
    )


def _is_count(text: str, most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9 and 1 <= int(text) <= most


def _claim(credential: str, at: str, signed: str, signature: str, valid_ms: int | None) -> Claim:
    parts = credential.rsplit("/", 4)
    if len(parts) != 5 or parts[4] != TERMINATOR or not signed or not signature or not at:
        raise Fault(
            "IncompleteSignature",
            "A signature needs a Credential of five parts, SignedHeaders, Signature and a date.",
        )
    access_key, day, region, service, _ = parts
    names = tuple(signed.split(";"))
    return Claim(access_key, day, region, service, at, names, signature, valid_ms)


def verify(
    request: SignedRequest,
    claim: Claim | None,
    secrets: Mapping[str, str],
    now_ms: int,
    services: Iterable[str] = SERVICES,
) -> str:
    """Returns the access key that signed the request; raises Fault if the signature is invalid."""
    if claim is None:
        raise Fault("MissingAuthenticationToken", "The request is not signed.")
    secret = secrets.get(claim.access_key)
    if secret is None:
        raise Fault("InvalidClientTokenId", "The access key does not exist.")
    if claim.service not in services:
        raise Fault("SignatureDoesNotMatch", f"Signed for another service: {claim.service}.")
    _check_time(claim, now_ms)
    _check_headers(request, claim)
    expected = sign(request, claim, secret)
    if not hmac.compare_digest(expected.encode(), claim.signature.encode()):
        raise Fault(
            "SignatureDoesNotMatch",
            "The signature does not match the request. Check the secret access key.",
        )
    return claim.access_key


def _check_time(claim: Claim, now_ms: int) -> None:
    try:
        at = datetime.strptime(claim.at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise Fault(
            "IncompleteSignature", "The date must have the form 20150830T123600Z."
        ) from error
    if claim.at[:8] != claim.day:
        raise Fault("SignatureDoesNotMatch", "The date is not that of the credential's scope.")
    age_ms = now_ms - int(at.timestamp() * 1000)
    if not -SKEW_MS_MAX <= age_ms <= (claim.valid_ms or SKEW_MS_MAX):
        raise Fault("SignatureDoesNotMatch", f"Signature expired, or not valid yet: {claim.at}.")


def _check_headers(request: SignedRequest, claim: Claim) -> None:
    required = {"host"}
    if claim.valid_ms is None:
        required.add("x-amz-date")
    # The action must be signed, or it could be replaced in transit.
    if request.header("x-amz-target") is not None:
        required.add("x-amz-target")
    unsigned = sorted(required.difference(claim.signed_headers))
    if unsigned:
        raise Fault("SignatureDoesNotMatch", f"These headers must be signed: {unsigned}.")


# -- the signature itself ---------------------------------------------------------------------


def sign(request: SignedRequest, claim: Claim, secret: str) -> str:
    """Computes the signature of a request with a secret."""
    canonical = canonical_request(request, claim)
    text = "\n".join((ALGORITHM, claim.at, claim.scope, sha256(canonical.encode()).hexdigest()))
    return _hmac(signing_key(secret, claim), text).hex()


def signing_key(secret: str, claim: Claim) -> bytes:
    key = ("AWS4" + secret).encode()
    for part in (claim.day, claim.region, claim.service, TERMINATOR):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def canonical_request(request: SignedRequest, claim: Claim) -> str:
    lines = [f"{name}:{_canonical_header(request, name)}\n" for name in claim.signed_headers]
    return "\n".join(
        (
            request.method,
            quote(_normal_path(request.path), safe="/" + UNRESERVED),
            _canonical_query(request.query),
            "".join(lines),
            ";".join(claim.signed_headers),
            sha256(request.body).hexdigest(),
        )
    )


def _canonical_header(request: SignedRequest, name: str) -> str:
    return ",".join(" ".join(value.split()) for key, value in request.headers if key == name)


def _canonical_query(query: bytes) -> str:
    pairs = [
        (quote(name, safe=UNRESERVED), quote(value, safe=UNRESERVED))
        for name, value in _decoded(query)
        if name != b"X-Amz-Signature"
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _decoded(query: bytes) -> list[tuple[bytes, bytes]]:
    pairs = [part.partition(b"=") for part in query.split(b"&") if part]
    return [(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in pairs]


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _normal_path(path: bytes) -> bytes:
    """Removes empty, `.` and `..` segments (RFC 3986); a final slash stays."""
    kept: list[bytes] = []
    segments = path.split(b"/")
    for segment in segments:
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    closing = b"/" if kept and segments[-1] in (b"", b".", b"..") else b""
    return b"/" + b"/".join(kept) + closing
