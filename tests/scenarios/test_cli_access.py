"""Refused access on the command line: the message names what is required and the command for it."""

import re
import shlex
from pathlib import Path

import pytest
import trustme

from penstock.cli import main
from tests.conftest import FreshBroker

PASSWORD = "hunter2-hunter2"
GRANT = re.compile(r"`penstock (acl allow [^`]+)`")
GRANTS_MAX = 4


def login(folder: Path, user: str) -> str:
    """Path of a client's settings for this user."""
    path = folder / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username={user}\nsasl.password={PASSWORD}\n"
    )
    return str(path)


def test_login_and_permissions_are_named_with_the_commands_that_give_them(
    fresh_broker: FreshBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "password").chmod(0o600)
    broker = fresh_broker(
        sets={
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "authorizer.class.name": "acl",
            "super.users": "User:admin",
            "admin.password.file": str(tmp_path / "password"),
        }
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PENSTOCK_BROKERS", broker.bootstrap)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(user: str, *words: str) -> tuple[int, str]:
        capsys.readouterr()
        given = ["--command-config", login(tmp_path, user)] if user else []
        return main.run([*given, *words]), capsys.readouterr().err

    code, told = run("", "topic", "list")
    assert code == 1
    assert "requires a login (SASL: SCRAM-SHA-256" in told
    assert f"penstock profile add NAME -b {broker.bootstrap} --username USER" in told

    for words in (
        ("topic", "create", "t"),
        ("user", "set", "alice", "--password-file", str(tmp_path / "password")),
    ):
        code, told = run("admin", *words)
        assert code == 0, told

    for line in (
        "topic describe t",
        "produce t hello",
        "consume t -o start -e",
        "topic create u",
        "topic delete u --yes",
        "consume t -g g -o start -e",
        "group describe g",
        "config list",
        "user list",
    ):
        granted: list[str] = []
        code, told = run("alice", *line.split())
        assert code == 1, line
        while code and len(granted) < GRANTS_MAX:
            found = GRANT.search(told)
            assert found is not None, (line, told)
            assert found[1] not in granted, (line, told, "granting it did not help")
            granted.append(found[1])
            assert run("admin", *shlex.split(found[1]))[0] == 0, found[1]
            code, told = run("alice", *line.split())
        assert code == 0, (line, granted, told)
        if granted:
            assert run("admin", "acl", "remove", "--principal", "alice", "--yes")[0] == 0


def test_listener_that_requires_tls_is_named(
    fresh_broker: FreshBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = trustme.CA()
    pem = tmp_path / "key.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(pem))
    pem.chmod(0o600)
    sets = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(pem)}
    broker = fresh_broker(sets=sets)
    capsys.readouterr()
    assert main.run(["topic", "list", "-b", broker.bootstrap]) == 1
    told = capsys.readouterr().err
    assert f"{broker.bootstrap} requires TLS; connect with `penstock profile add NAME" in told
