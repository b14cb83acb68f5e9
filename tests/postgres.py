"""One real PostgreSQL as a child process, for tests, with its own socket and files.

Owns exactly the process it starts. PostgreSQL refuses to run as root, so there it runs as the user
that Debian's package made for it.
"""

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

READY_S = 60.0
USER = "postgres"


def find_postgres() -> Path:
    """Directory of its programs. Without them: a failure in CI, elsewhere a skip with a reason."""
    for directory in sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True):
        if Path(directory, "initdb").exists():
            return Path(directory)
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    reason = "PostgreSQL is not installed; see tests/clients/ensure_tools.sh"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresProcess:
    """A server with one empty database, started by the constructor."""

    def __init__(self) -> None:
        self._programs = find_postgres()
        # pytest's own directories are not accessible to other users.
        self._directory = Path(tempfile.mkdtemp(prefix="pg-"))
        self._user = USER if os.geteuid() == 0 else None
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._directory, account.pw_uid, account.pw_gid)
        data = self._directory / "data"
        self._run("initdb", "-D", str(data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._programs / "postgres"),
                    *("-D", str(data), "-k", str(self._directory)),
                    *("-c", "listen_addresses=", "-c", "fsync=off"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._directory,
            )
        self._wait_ready()

    @property
    def url(self) -> str:
        """URL for SQLAlchemy."""
        return f"postgresql://{USER}@/postgres?host={self._directory}"

    @property
    def conninfo(self) -> str:
        """Connection string for psycopg."""
        return f"host={self._directory} user={USER} dbname=postgres"

    def create_database(self, name: str) -> str:
        """Creates a database for one test; returns its URL."""
        host = ("-h", str(self._directory), "-U", USER)
        self._run("createdb", *host, name)
        return f"postgresql://{USER}@/{name}?host={self._directory}"

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        command = [str(self._programs / "pg_isready"), "-q", "-h", str(self._directory)]
        while subprocess.run(command, check=False).returncode != 0:
            log = (self._directory / "log").read_text(errors="replace")
            assert self._process.poll() is None, log
            if time.monotonic() >= deadline:
                raise TimeoutError(log)
            time.sleep(0.02)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._programs / program), *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
            cwd=self._directory,
        )
