"""Sessions: their settings, and `bin/penstock-python`, which takes PySpark from where it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import ON_ONE_MACHINE, open_session, worker_python

SHOW = "import json, os; print(json.dumps(os.environ.get('PYTHONPATH')))"


def path_seen(given: str) -> str | None:
    command = [worker_python(), "-c", SHOW]
    environment = {**os.environ, "PYTHONPATH": given}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: str | None = json.loads(done.stdout)
    return found


def test_it_is_installed_beside_this_python() -> None:
    assert worker_python() == str(Path(sys.executable).parent / "penstock-python")


def test_the_zip_of_an_installed_pyspark_gives_way_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    zipped = tmp_path / "pyspark" / "python" / "lib" / "pyspark.zip"
    assert path_seen(f"/before:{zipped}:/after") == f"/before:{tmp_path}:/after"


def test_any_other_zip_and_any_other_path_stay(tmp_path: Path) -> None:
    """A Spark that was unpacked has no modules beside its zip."""
    given = f"{tmp_path}/python/lib/pyspark.zip:/a b:/c"
    assert path_seen(given) == given
    assert path_seen("") == ""


class Builder:
    """Stands in for Spark's: keeps what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.sparkContext = self

    def appName(self, name: str) -> "Builder":
        return self

    master = remote = appName

    def config(self, key: str, value: str) -> "Builder":
        self.told[key] = value
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
def test_on_one_machine_small_batches_are_made_quick(builder: Builder, master: str | None) -> None:
    open_session("x", master=master)
    assert ON_ONE_MACHINE.items() <= builder.told.items()


def test_a_cluster_keeps_its_own_way_of_writing_checkpoints(builder: Builder) -> None:
    open_session("x", master="spark://host:7077")
    open_session("x", remote="sc://host:15002")
    assert not ON_ONE_MACHINE.keys() & builder.told.keys()


def test_a_session_that_is_there_keeps_its_own_way(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: builder)
    open_session("x")
    assert not ON_ONE_MACHINE.keys() & builder.told.keys()


def test_what_the_user_says_wins(builder: Builder) -> None:
    name = "spark.python.unix.domain.socket.enabled"
    open_session("x", settings={name: "false"})
    assert builder.told[name] == "false"
