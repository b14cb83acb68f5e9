"""`bin/penstock-python`: PySpark from where it is installed, and everything else as it was."""

import json
import os
import subprocess
import sys
from pathlib import Path

from penstock.spark.session import worker_python

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
