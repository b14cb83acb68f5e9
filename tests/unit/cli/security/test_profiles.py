"""Clusters by name: kept for their owner only, shown without secrets, used where meant."""

import json
import stat
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.cli.terminal import profile_file
from penstock.cli.terminal.profile_file import Profile, Profiles

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PENSTOCK_BROKERS", "PENSTOCK_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def add(name: str, *words: str) -> None:
    assert run(["profile", "add", name, "-b", "127.0.0.1:1", *words]) == 0


def failure(capsys: Capture, *words: str) -> str:
    capsys.readouterr()
    assert run(words) == 1
    return capsys.readouterr().err


def test_profiles_round_trip() -> None:
    odd = {'"quoted"\n': 'back\\slash "x" \x7f é 😀', "sasl.password": "a=b # c"}
    kept = Profiles("east", {"east": Profile("a:1,b:2", odd), "a.b c": Profile("c:3")})
    profile_file.write(kept)
    assert profile_file.read() == kept


def test_profile_file_is_readable_by_its_owner_only(tmp_path: Path, capsys: Capture) -> None:
    add("dev")
    path = tmp_path / "penstock" / "profiles.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]
    path.chmod(0o644)
    capsys.readouterr()
    profile_file.read()
    assert "chmod 600" in capsys.readouterr().err


def test_first_profile_is_used_until_another_is_selected(capsys: Capture) -> None:
    add("dev")
    add("prod")
    capsys.readouterr()
    run(["profile", "list", "--format", "json"])
    rows = {row["name"]: row["in_use"] for row in json.loads(capsys.readouterr().out)}
    assert rows == {"dev": True, "prod": False}
    assert run(["profile", "use", "prod"]) == 0
    assert profile_file.read().current == "prod"
    assert "did you mean 'prod'?" in failure(capsys, "profile", "use", "prd")


def test_secrets_are_not_shown(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    word = str(tmp_path / "password")
    add("prod", "--username", "alice", "--password-file", word, "--set", "ssl.key.password=s3")
    for format in ("text", "json", "yaml", "wide"):
        capsys.readouterr()
        assert run(["profile", "show", "prod", "--format", format]) == 0
        shown = capsys.readouterr().out
        assert "alice" in shown
        assert "hunter2" not in shown
        assert "s3" not in shown
    assert profile_file.read().by_name["prod"].security["sasl.password"] == "hunter2"


def test_commands_use_the_brokers_of_the_profile(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("dev")
    assert run(["profile", "add", "prod", "-b", "127.0.0.1:2"]) == 0
    assert "127.0.0.1:1" in failure(capsys, "topic", "list")
    assert "127.0.0.1:2" in failure(capsys, "--profile", "prod", "topic", "list")
    assert "127.0.0.1:3" in failure(capsys, "topic", "list", "-b", "127.0.0.1:3")
    monkeypatch.setenv("PENSTOCK_PROFILE", "prod")
    assert "127.0.0.1:2" in failure(capsys, "topic", "list")
    assert "no profile 'nosuch'" in failure(capsys, "--profile", "nosuch", "topic", "list")


def test_credentials_go_only_to_the_brokers_of_their_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[dict[str, str]] = []

    def watched(settings: dict[str, str], random: object) -> object:
        seen.append(settings)
        raise ValueError("seen")

    add("prod", "--set", "sasl.username=alice", "--set", "sasl.password=x")
    monkeypatch.setattr("penstock.client.security_settings.parse_security", watched)
    for words in (
        ["topic", "list"],
        ["topic", "list", "-b", "127.0.0.1:3"],
        ["--profile", "prod", "topic", "list", "-b", "127.0.0.1:3"],
    ):
        assert run(words) == 1
    assert [settings.get("sasl.username") for settings in seen] == ["alice", None, "alice"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-b", "host:port"], "write host:port"),
        (["-b", "a:1", "--set", "sasl.usrname=x"], "sasl.username"),
        (["-b", "a:1", "--username", "alice"], "--password-file"),
        (["-b", "a:1", "--tls", "--ca", "nosuch.pem"], "nosuch.pem"),
    ],
)
def test_invalid_profile_is_refused_when_added(
    capsys: Capture, words: list[str], expected: str
) -> None:
    assert expected in failure(capsys, "profile", "add", "bad", *words)
    assert profile_file.read().by_name == {}


def test_existing_profile_name_needs_replace(capsys: Capture) -> None:
    add("dev")
    assert "--replace" in failure(capsys, "profile", "add", "dev", "-b", "a:1")
    assert run(["profile", "add", "dev", "-b", "a:1", "--replace"]) == 0
    assert profile_file.read().by_name["dev"].brokers == "a:1"


def test_removal_needs_confirmation(capsys: Capture) -> None:
    add("dev")
    assert "--yes" in failure(capsys, "profile", "remove", "dev")
    assert run(["profile", "remove", "dev", "--yes"]) == 0
    assert profile_file.read() == Profiles()


def test_broken_profile_file_is_named(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "penstock" / "profiles.toml"
    path.parent.mkdir()
    path.write_text("[profiles.dev]\n")
    path.chmod(0o600)
    assert "profiles.toml is not a valid profile file" in failure(capsys, "topic", "list")
