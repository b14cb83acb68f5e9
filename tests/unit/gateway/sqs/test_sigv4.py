"""Signatures published by AWS, and refusals."""

import pytest

from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, sign, verify

KEY = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SECRETS = {KEY: SECRET}
AT = "20150830T123600Z"
AT_MS = 1_440_938_160_000
SCOPE = "20150830/us-east-1/service/aws4_request"
MINUTE_MS = 60_000
Headers = list[tuple[str, str]]

# The test suite of Signature Version 4: method, path, query, more headers, body, signature.
SUITE: dict[str, tuple[str, bytes, bytes, Headers, bytes, str]] = {
    "vanilla": (
        "GET", b"/", b"", [], b"",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post": (
        "POST", b"/", b"", [], b"",
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "form": (
        "POST", b"/", b"", [("content-type", "application/x-www-form-urlencoded")],
        b"Param1=value1",
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
    "header given twice": (
        "GET", b"/", b"",
        [("my-header1", "value2"), ("my-header1", "value2"), ("my-header1", "value1")], b"",
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "spaces in headers": (
        "GET", b"/", b"", [("my-header1", " value1"), ("my-header2", ' "a   b   c"')], b"",
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "path in utf-8": (
        "GET", "/ሴ".encode(), b"", [], b"",
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "unreserved path": (
        "GET", b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", b"", [],
        b"",
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    "special character in the path": (
        "GET", b"/example/$delete", b"", [], b"",
        "a853c9b21b528b19643d00910d35b83a10c366a10833ceefb45edd6c80e40f27",
    ),
    "path with dots": (
        "GET", b"/example1/example2/../..", b"", [], b"",
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "path with slashes": (
        "GET", b"//example//", b"", [], b"",
        "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
    ),
    "query encoded and sorted": (
        "GET", b"/", b"Param-3=Value3&Param=Value2&%E1%88%B4=Value1", [], b"",
        "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
    ),
    "query with one name twice": (
        "GET", b"/", b"Param1=value2&Param1=Value1", [], b"",
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
    ),
}  # fmt: skip


def request_of(
    method: str = "POST",
    path: bytes = b"/",
    query: bytes = b"",
    more: Headers | None = None,
    body: bytes = b"",
    signature: str = "0" * 64,
) -> SignedRequest:
    more = more or []
    names = sorted({"host", "x-amz-date", *(name for name, _ in more)})
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{SCOPE}, SignedHeaders={';'.join(names)}, "
        f"Signature={signature}"
    )
    headers = [("host", "example.amazonaws.com"), *more, ("x-amz-date", AT)]
    return SignedRequest(method, path, query, [*headers, ("authorization", authorization)], body)


@pytest.mark.parametrize("name", SUITE)
def test_signatures_equal_the_published_ones(name: str) -> None:
    request = request_of(*SUITE[name])
    claim = claim_of(request)
    assert claim is not None
    assert sign(request, claim, SECRET) == SUITE[name][-1]
    assert verify(request, claim, SECRETS, AT_MS, ["service"]) == KEY


def refusal(request: SignedRequest, now_ms: int = AT_MS, services: str = "service") -> str:
    with pytest.raises(Fault) as refused:
        verify(request, claim_of(request), SECRETS, now_ms, [services])
    return refused.value.name


def test_tampered_request_is_refused() -> None:
    good = SUITE["form"]
    assert refusal(request_of(*good[:4], b"Param1=value2", good[5])) == "SignatureDoesNotMatch"
    assert refusal(request_of("GET", *good[1:])) == "SignatureDoesNotMatch"
    assert refusal(request_of("POST", b"/other", *good[2:])) == "SignatureDoesNotMatch"
    assert refusal(request_of("POST", b"/", b"a=b", *good[3:])) == "SignatureDoesNotMatch"


def test_request_is_valid_for_five_minutes_around_its_date() -> None:
    request = request_of(*SUITE["post"])
    claim = claim_of(request)
    for off in (-5 * MINUTE_MS, 5 * MINUTE_MS):
        assert verify(request, claim, SECRETS, AT_MS + off, ["service"]) == KEY
    for off in (-6 * MINUTE_MS, 6 * MINUTE_MS):
        assert refusal(request, AT_MS + off) == "SignatureDoesNotMatch"


def test_wrong_keys_services_and_missing_signatures_are_refused() -> None:
    request = request_of(*SUITE["post"])
    assert refusal(request, services="sqs") == "SignatureDoesNotMatch"
    with pytest.raises(Fault) as refused:
        verify(request, claim_of(request), {"OTHER": SECRET}, AT_MS, ["service"])
    assert refused.value.name == "InvalidClientTokenId"
    bare = SignedRequest("POST", b"/", b"", [("host", "h")], b"")
    assert claim_of(bare) is None
    assert refusal(bare) == "MissingAuthenticationToken"


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic abc",
        "AWS4-HMAC-SHA256",
        f"AWS4-HMAC-SHA256 Credential={KEY}, SignedHeaders=host, Signature=0",
        f"AWS4-HMAC-SHA256 Credential={KEY}/{SCOPE}, Signature=0",
        f"AWS4-HMAC-SHA256 Credential={KEY}/{SCOPE}, SignedHeaders=host",
    ],
)
def test_malformed_signature_is_refused(authorization: str) -> None:
    headers = [("host", "h"), ("x-amz-date", AT), ("authorization", authorization)]
    with pytest.raises(Fault) as refused:
        claim_of(SignedRequest("POST", b"/", b"", headers, b""))
    assert refused.value.name == "IncompleteSignature"


def test_host_date_and_target_must_be_signed() -> None:
    authorization = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/{SCOPE}, SignedHeaders=host;x-amz-date, Signature=0"
    )
    headers = [("host", "h"), ("x-amz-date", AT), ("authorization", authorization)]
    unsigned = SignedRequest("POST", b"/", b"", [*headers, ("x-amz-target", "A.B")], b"")
    with pytest.raises(Fault, match="x-amz-target"):
        verify(unsigned, claim_of(unsigned), SECRETS, AT_MS, ["service"])
    no_date = [(name, value.replace(";x-amz-date", "")) for name, value in headers]
    bare = SignedRequest("POST", b"/", b"", no_date, b"")
    with pytest.raises(Fault, match="x-amz-date"):
        verify(bare, claim_of(bare), SECRETS, AT_MS, ["service"])


def test_presigned_url_is_valid_for_its_stated_time() -> None:
    query = (
        f"Action=ListQueues&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={KEY}%2F"
        f"{SCOPE.replace('/', '%2F')}&X-Amz-Date={AT}&X-Amz-Expires=3600&X-Amz-SignedHeaders=host"
    )
    headers = [("host", "example.amazonaws.com")]
    unsigned = SignedRequest("GET", b"/", (query + "&X-Amz-Signature=0").encode(), headers, b"")
    claim = claim_of(unsigned)
    assert claim is not None
    signature = sign(unsigned, claim, SECRET)
    signed = SignedRequest(
        "GET", b"/", f"{query}&X-Amz-Signature={signature}".encode(), headers, b""
    )
    assert verify(signed, claim_of(signed), SECRETS, AT_MS + 59 * MINUTE_MS, ["service"]) == KEY
    assert refusal(signed, AT_MS + 61 * MINUTE_MS) == "SignatureDoesNotMatch"
