"""Starts that are refused for their security settings, without a file left behind."""

from pathlib import Path

import pytest

from penstock.cli import main

UNUSABLE = {
    "missing certificate": (
        {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/nope.pem"},
        "/nope.pem",
    ),
    "missing certificate of HTTP": (
        {"http.security.protocol": "SSL", "ssl.keystore.location": "/nope.pem"},
        "/nope.pem",
    ),
    "no certificate": ({"listeners": "SSL://127.0.0.1:0"}, "ssl.keystore.location"),
    "missing key": (
        {"encryption.enable": "true", "encryption.kek.source": "file:/nope.key"},
        "encryption.kek.source",
    ),
    "no key": ({"encryption.enable": "true"}, "encryption.kek.source"),
    "bad key": ({"encryption.kek.source": "env:PENSTOCK_TEST_KEY"}, "encryption.kek.source"),
    "bad super user": ({"super.users": "admin"}, "super.users"),
    "missing password": (
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "admin.password.file": "/nope.txt",
        },
        "admin.password.file",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_refused_start_leaves_no_files(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_KEY", "1:tooshort")
    sets, named = UNUSABLE[name]
    pairs = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    ports = [] if "listeners" in sets else ["--kafka-port", "0"]
    data = tmp_path / "data"
    assert main.run(["up", "--data", str(data), *ports, "--http-port", "0", *pairs]) == 1
    assert named in capsys.readouterr().err
    assert not data.exists()
