"""No secret leaves with a bundle."""

import pytest

from penstock.cli.terminal.redaction import REDACTED, is_secret, redact

HIDDEN = "hunter2secretvalue"


@pytest.mark.parametrize(
    "text",
    [
        f'password = "{HIDDEN}"',
        f"ssl.key.password={HIDDEN}",
        f"[etcd]\npassword = '{HIDDEN}'\nuser = 'root'",
        f'{{"sasl.password": "{HIDDEN}", "a": 1}}',
        f"sasl.jaas.config=org.apache.X required username=a password='{HIDDEN}';",
        f'sasl.jaas.config=org.apache.X required pin="{HIDDEN}";',
        f"http://user:{HIDDEN}@host:2379/x",
        f"Authorization: Bearer {HIDDEN}",
        f"authorization: basic {HIDDEN}==",
        f"client_secret: {HIDDEN}",
        f"oauth.token={HIDDEN}",
        f"-----BEGIN PRIVATE KEY-----\n{HIDDEN}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{HIDDEN}",
    ],
)
def test_secret_is_redacted(text: str) -> None:
    cleaned = redact(text)
    assert HIDDEN not in cleaned
    assert REDACTED in cleaned


def test_other_settings_are_unchanged() -> None:
    text = 'node-id = 2\ndata = "/var/lib/penstock"\nnum.partitions = 3\n[etcd]\nuser = "root"\n'
    assert redact(text) == text


def test_redaction_of_long_words_is_fast() -> None:
    text = "a" * 200_000
    assert redact(text) == text


def test_secret_settings_are_recognized_by_name() -> None:
    assert is_secret("ssl.keystore.password")
    assert is_secret("sasl.jaas.config")
    assert not is_secret("num.partitions")
    assert not is_secret("ssl.keystore.location")
