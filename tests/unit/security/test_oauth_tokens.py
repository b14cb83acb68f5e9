"""Bearer tokens: every accepted signature algorithm, and the refused ones."""

import base64
import json
import subprocess
import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from penstock.base.errors import Refused
from penstock.security.login import AuthenticatedIdentity, LoginFailed
from penstock.security.oauth_tokens import KeySet, TokenRules, key_id, parse_keys, verify

NOW_MS = 1_000_000_000
CLAIMS = {"sub": "bob", "exp": NOW_MS // 1000 + 60, "iss": "us", "aud": ["penstock"]}
RSA = rsa.generate_private_key(65537, 2048)
CURVES = {
    "ES256": ("P-256", ec.generate_private_key(ec.SECP256R1())),
    "ES384": ("P-384", ec.generate_private_key(ec.SECP384R1())),
    "ES512": ("P-521", ec.generate_private_key(ec.SECP521R1())),
}


def text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return text(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def key_document() -> bytes:
    public = RSA.public_key().public_numbers()
    rows: list[dict[str, str]] = [
        {"kty": "RSA", "kid": "rsa", "n": number(public.n), "e": number(public.e)},
        {"kty": "oct", "kid": "shared", "k": text(b"secret")},
    ]
    for name, (curve, key) in CURVES.items():
        point = key.public_key().public_numbers()
        rows.append(
            {"kty": "EC", "kid": name, "crv": curve, "x": number(point.x), "y": number(point.y)}
        )
    return json.dumps({"keys": rows}).encode()


def keys() -> KeySet:
    return parse_keys(key_document())


def sign(algorithm: str, claims: dict[str, Any], kid: str | None = None) -> str:
    key = kid or ("rsa" if algorithm[0] in "RP" else algorithm)
    head = text(json.dumps({"alg": algorithm, "kid": key}).encode())
    signed = f"{head}.{text(json.dumps(claims).encode())}"
    sizes: dict[str, hashes.HashAlgorithm] = {
        "256": hashes.SHA256(),
        "384": hashes.SHA384(),
        "512": hashes.SHA512(),
    }
    digest = sizes[algorithm[2:]]
    if algorithm.startswith("ES"):
        private = CURVES[algorithm][1]
        r, s = utils.decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(digest)))
        size = (private.curve.key_size + 7) // 8
        signature = r.to_bytes(size, "big") + s.to_bytes(size, "big")
    elif algorithm.startswith("PS"):
        salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
        signature = RSA.sign(signed.encode(), salted, digest)
    else:
        signature = RSA.sign(signed.encode(), padding.PKCS1v15(), digest)
    return f"{signed}.{text(signature)}"


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *CURVES]
)
def test_signed_token_has_a_principal_and_an_expiry(algorithm: str) -> None:
    token = sign(algorithm, CLAIMS)
    found = verify(token, keys(), TokenRules("us", ["penstock"]), NOW_MS)
    assert found == AuthenticatedIdentity("User:bob", CLAIMS["exp"] * 1000)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": NOW_MS // 1000 - 31}, "expired"),
        ({"exp": None}, "Missing claim: 'exp'"),
        ({"exp": True}, "'exp' must be a NumericDate"),
        ({"exp": "1e9"}, "'exp' must be a NumericDate"),
        ({"exp": float("nan")}, "'exp' must be a NumericDate"),
        ({"nbf": NOW_MS // 1000 + 60}, "not yet valid"),
        ({"nbf": "soon"}, "'nbf' must be a NumericDate"),
        ({"iat": NOW_MS // 1000 + 60}, "in the future"),
        ({"iss": "them"}, r"Invalid claim: 'iss' \('them'\)"),
        ({"iss": None}, "Missing claim: 'iss'"),
        ({"exp": 1e300}, "not between"),
        ({"exp": -1}, "expired"),
        ({"aud": "others"}, "Invalid claim: 'aud'"),
        ({"aud": None}, "Missing claim: 'aud'"),
        ({"aud": []}, "Invalid claim: 'aud'"),
        ({"aud": 7}, "'aud' must be"),
        ({"aud": {"penstock": 1}}, "'aud' must be"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "__node"}, "user of the nodes"),
    ],
)
def test_token_claims_are_validated(changes: dict[str, Any], why: str) -> None:
    token = sign("RS256", CLAIMS | changes)
    with pytest.raises(LoginFailed, match=why):
        verify(token, keys(), TokenRules("us", ["penstock"]), NOW_MS)


def test_clocks_may_be_off_a_little() -> None:
    token = sign("RS256", CLAIMS | {"exp": NOW_MS // 1000 - 29})
    assert verify(token, keys(), TokenRules(), NOW_MS).principal == "User:bob"


def test_changed_token_is_refused() -> None:
    head, _, signature = sign("RS256", CLAIMS).split(".")
    other = text(json.dumps(CLAIMS | {"sub": "admin"}).encode())
    with pytest.raises(LoginFailed, match="signature"):
        verify(f"{head}.{other}.{signature}", keys(), TokenRules(), NOW_MS)


def test_neither_no_signature_nor_a_shared_secret_is_believed() -> None:
    body = text(json.dumps(CLAIMS).encode())
    for algorithm, kid in (("none", ""), ("HS256", "shared"), ("HS256", "rsa")):
        head = text(json.dumps({"alg": algorithm, "kid": kid}).encode())
        with pytest.raises(LoginFailed, match="signed with"):
            verify(f"{head}.{body}.", keys(), TokenRules(), NOW_MS)


def test_unknown_critical_header_refuses_a_token() -> None:
    head, body, _ = sign("RS256", CLAIMS).split(".")
    fields = {"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}
    head = text(json.dumps(fields).encode())
    signature = RSA.sign(f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    with pytest.raises(LoginFailed, match="critical"):
        verify(f"{head}.{body}.{text(signature)}", keys(), TokenRules(), NOW_MS)


def test_key_signs_only_with_its_own_algorithm() -> None:
    with pytest.raises(LoginFailed, match="requires 'RSA' key"):
        verify(sign("RS256", CLAIMS, "ES256"), keys(), TokenRules(), NOW_MS)
    with pytest.raises(LoginFailed, match="unknown signing key"):
        verify(sign("RS256", CLAIMS, "unknown"), keys(), TokenRules(), NOW_MS)


def test_key_signs_only_with_the_algorithm_and_for_the_use_that_it_names() -> None:
    public = RSA.public_key().public_numbers()
    row = {"kty": "RSA", "kid": "rsa", "n": number(public.n), "e": number(public.e)}
    only = parse_keys(json.dumps({"keys": [row | {"alg": "RS256"}]}).encode())
    assert verify(sign("RS256", CLAIMS), only, TokenRules(), NOW_MS).principal == "User:bob"
    with pytest.raises(LoginFailed, match="designed for algorithm 'RS256'"):
        verify(sign("PS256", CLAIMS), only, TokenRules(), NOW_MS)
    other = parse_keys(json.dumps({"keys": [row | {"key_ops": ["encrypt"]}]}).encode())
    assert other == KeySet()


def test_private_key_in_the_set_is_not_kept() -> None:
    public, private = RSA.public_key().public_numbers(), RSA.private_numbers()
    row = {"kty": "RSA", "kid": "rsa", "n": number(public.n), "e": number(public.e)}
    found = parse_keys(json.dumps({"keys": [row | {"d": number(private.d)}]}).encode())
    assert not found.keys["rsa"].is_private
    assert verify(sign("RS256", CLAIMS), found, TokenRules(), NOW_MS).principal == "User:bob"


def test_headers_of_issuers_are_accepted() -> None:
    """Headers with certificates and with parameters outside the standard are accepted."""
    body = sign("RS256", CLAIMS).split(".")[1]
    fields = {"alg": "RS256", "kid": "rsa", "typ": "JWT", "x5c": ["A" * 4000], "tenant": 7}
    head = text(json.dumps(fields).encode())
    signature = RSA.sign(f"{head}.{body}".encode(), padding.PKCS1v15(), hashes.SHA256())
    token = f"{head}.{body}.{text(signature)}"
    assert verify(token, keys(), TokenRules(), NOW_MS).principal == "User:bob"


def test_tokens_are_refused_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    known, token = keys(), sign("RS256", CLAIMS)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LoginFailed, match=r"penstock-mq\[security\]"):
        key_id(token)
    with pytest.raises(LoginFailed, match=r"penstock-mq\[security\]"):
        verify(token, known, TokenRules(), NOW_MS)
    with pytest.raises(Refused, match=r"penstock-mq\[security\]"):
        parse_keys(key_document())


def test_library_is_imported_with_the_first_token() -> None:
    code = "import sys, penstock.node.security.logins; sys.exit('joserfc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "token",
    [
        "",
        "ImFsZyI.e30.",
        "W10.e30.",
        "a" * 200_000,
        "a.b",
        "a.b.c",
        "é.b.c",
        "e30.e30.e30",
        "bnVsbA.e30.",
        "....",
    ],
)
def test_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(LoginFailed):
        verify(token, keys(), TokenRules(), NOW_MS)


def test_short_keys_and_keys_for_other_uses_are_left_out() -> None:
    short = rsa.generate_private_key(65537, 1024).public_key().public_numbers()
    row = {"kty": "RSA", "kid": "short", "n": number(short.n), "e": number(short.e)}
    other = {"kty": "RSA", "kid": "enc", "use": "enc", "n": "AQAB", "e": "AQAB"}
    broken = {"kty": "EC", "kid": "broken", "crv": "P-256", "x": "AQ", "y": "AQ"}
    document = json.dumps({"keys": [row, other, broken, 7, {}]}).encode()
    assert parse_keys(document) == KeySet({})
    assert key_id(sign("RS256", CLAIMS)) == "rsa"


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys": 1}'])
def test_document_without_a_key_set_is_refused(document: bytes) -> None:
    with pytest.raises(Refused):
        parse_keys(document)
