"""Session settings, and `bin/penstock-python`, which uses the installed PySpark directly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import ON_ONE_MACHINE, open_session, worker_python

PRINT_PATH = "import json, os; print(json.dumps(os.environ.get('PYTHONPATH')))"


def path_seen(given: str) -> str | None:
    command = [worker_python(), "-c", PRINT_PATH]
    environment = {**os.environ, "PYTHONPATH": given}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: str | None = json.loads(done.stdout)
    return found


def test_worker_python_is_installed_beside_this_python() -> None:
    assert worker_python() == str(Path(sys.executable).parent / "penstock-python")


def test_worker_python_replaces_the_zip_of_an_installed_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    zipped = tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"
    assert path_seen(f"/before:{zipped}:/after") == f"/before:{tmp_path}:/after"


def test_worker_python_keeps_other_paths(tmp_path: Path) -> None:
    """An unpacked Spark has no modules beside its zip."""
    given = f"{tmp_path}/python/lib/pyspark.zip:/a b:/c"
    assert path_seen(given) == given
    assert path_seen("") == ""


class Builder:
    """Fake session builder that records its settings."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.sparkContext = self

    def appName(self, name: str) -> "Builder":
        return self

    master = remote = appName

    def config(self, key: str, value: str) -> "Builder":
        self.settings[key] = value
        return self

    def getOrCreate(self) -> "Builder":
        return self

    def setLogLevel(self, level: str) -> None:
        pass


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    made = Builder()
    monkeypatch.setattr(SparkSession, "builder", made)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    return made


@pytest.mark.parametrize("master", [None, "local[2]", "local-cluster[2,1,1024]"])
def test_local_session_gets_settings_for_small_batches(
    builder: Builder, master: str | None
) -> None:
    open_session("x", master=master)
    assert ON_ONE_MACHINE.items() <= builder.settings.items()


def test_cluster_session_keeps_its_settings(builder: Builder) -> None:
    open_session("x", master="spark://host:7077")
    open_session("x", remote="sc://host:15002")
    assert not ON_ONE_MACHINE.keys() & builder.settings.keys()


def test_existing_session_keeps_its_settings(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: builder)
    open_session("x")
    assert not ON_ONE_MACHINE.keys() & builder.settings.keys()


def test_user_settings_take_precedence(builder: Builder) -> None:
    name = "spark.python.unix.domain.socket.enabled"
    open_session("x", settings={name: "false"})
    assert builder.settings[name] == "false"
