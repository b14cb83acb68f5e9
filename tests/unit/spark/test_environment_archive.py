"""Archive of packages for Spark's executors."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import penstock
from penstock.cli.main import run
from penstock.spark import environment_archive

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    (folder / "shop.py").write_text("NAME = 'shop'\n")
    # Fewer packages than for Spark: without NumPy and PyArrow it is quick.
    environment_archive.pack(
        folder / "a.tar.gz", sources=[folder / "shop.py"], roots=("penstock-mq",)
    )
    with tarfile.open(folder / "a.tar.gz") as archive:
        archive.extractall(folder / "penstock", filter="data")
    return folder / "penstock"


def python(unpacked: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(unpacked / "bin" / "python"), "-c", code],
        env={**clean, "PENSTOCK_BASE_PYTHON": BASE_PYTHON, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_python_of_the_archive_imports_its_packages(unpacked: Path) -> None:
    code = "import penstock.wire.rows, msgspec, shop; print(penstock.__file__, shop.NAME)"
    done = python(unpacked, code)
    assert done.stdout == f"{unpacked}/lib/penstock/__init__.py shop\n", done.stderr
    assert not (unpacked / "lib" / "pyspark").exists()


def test_missing_python_is_named(unpacked: Path) -> None:
    done = python(unpacked, "", PENSTOCK_BASE_PYTHON="python0")
    assert done.returncode == 127
    assert "needs Python 3." in done.stderr
    assert "python0 is not there" in done.stderr


def test_import_from_py_files_is_refused_with_the_reason(tmp_path: Path) -> None:
    root = Path(penstock.__file__).parent
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        for name in ("__init__.py", "spark/__init__.py"):
            archive.write(root / name, f"penstock/{name}")
    command = [sys.executable, "-c", "import penstock.spark"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "p.zip")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "run `penstock spark pack`" in done.stderr


def test_unknown_package_leaves_no_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar.gz"
    assert run(["spark", "pack", str(path), "--package", "no-such-package"]) == 1
    assert "package 'no-such-package' is not installed here" in capsys.readouterr().err
    assert not path.exists()
    assert run(["spark", "pack", str(path), "--source", str(tmp_path / "nowhere")]) == 1
    assert not path.exists()
