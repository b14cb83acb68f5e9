"""`deploy/systemd`: a unit that systemd accepts, hardened, with the config beside it."""

import re
import subprocess
from pathlib import Path

import pytest

from penstock.node.config import load
from tests.clients.tools import require_tool
from tests.deploy.packaged import DEPLOY

UNIT = DEPLOY / "systemd" / "penstock.service"
EXPOSURE_MAX = 2.0
"""Of 10, as systemd rates what a service may do; 9.6 without any hardening."""


@pytest.fixture
def analyze() -> str:
    return require_tool("systemd-analyze", "it is in Debian's package systemd")


def test_unit_is_valid(tmp_path: Path, analyze: str) -> None:
    text = UNIT.read_text()
    command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    program = command.removeprefix("ExecStart=").split()[0]
    copy = tmp_path / UNIT.name
    # Verification wants a program that exists.
    copy.write_text(text.replace(program, "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=strictly"))
    done = subprocess.run(
        [analyze, "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert "strictly" in done.stderr


def test_unit_leaves_the_service_few_rights(analyze: str) -> None:
    command = [analyze, "security", "--offline=true", "--no-pager", str(UNIT)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"exposure level for \S+ ([\d.]+)", told)
    assert found is not None, told
    assert float(found[1]) <= EXPOSURE_MAX


def test_config_beside_the_unit_uses_the_directory_that_systemd_makes() -> None:
    config = load(str(UNIT.with_name("node.toml")), {}, {})
    assert config.data_dir == "/var/lib/penstock"
    assert "StateDirectory=penstock\n" in UNIT.read_text()
    assert config.host == "127.0.0.1"
