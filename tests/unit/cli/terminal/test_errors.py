"""Failures that are explained in one line, and the next step they add."""

import errno

from penstock.base.errors import ErrorCode, PeerError, Refused
from penstock.cli.terminal.errors import explain
from penstock.client.errors import Unreachable


def test_refusal_has_a_next_step() -> None:
    refused = Refused(ErrorCode.TOPIC_ALREADY_EXISTS, "topic 'a' exists")
    assert explain(refused) == ("topic 'a' exists; choose another name, or use --if-not-exists")
    assert explain(Refused(ErrorCode.INVALID_CONFIG, "no such config")) == "no such config"


def test_known_failures_are_explained() -> None:
    assert explain(Unreachable("cannot reach a:1")) == "cannot reach a:1"
    assert explain(PeerError("broken\n protocol")) == "broken protocol"
    assert explain(FileNotFoundError(errno.ENOENT, "No such file", "x.toml")) == (
        "x.toml: no such file"
    )
    assert "permission denied for /data" in str(explain(PermissionError(errno.EACCES, "", "/data")))
    assert "the port is in use" in str(explain(OSError(errno.EADDRINUSE, "address in use")))
    assert "--host" in str(explain(OSError(errno.EADDRNOTAVAIL, "cannot assign")))
    assert "disk is full" in str(explain(OSError(errno.ENOSPC, "No space left")))


def test_missing_optional_package_names_its_extra() -> None:
    missing = ModuleNotFoundError("No module named 'pyspark.sql'", name="pyspark.sql")
    assert explain(missing) == (
        "this needs the package pyspark, which is not installed: pip install 'penstock-mq[spark]'"
    )
    assert explain(ModuleNotFoundError("No module named 'penstok'", name="penstok")) is None


def test_bugs_are_not_explained() -> None:
    assert explain(AssertionError("impossible")) is None
    assert explain(KeyError("x")) is None
    assert explain(TypeError("x")) is None
