"""A broker with authentication, and its administrator at the command line."""

import json
import subprocess
from pathlib import Path

from tests.brokers import COMMAND, QUICK, PenstockProcess

ADMIN = ("admin", "correct horse")


class Guarded:
    """Passwords and permissions; the user `admin` may do everything."""

    def __init__(self, directory: Path, **sets: object) -> None:
        self.directory = directory
        (directory / "admin.password").write_text(ADMIN[1] + "\n")
        self.process = PenstockProcess(
            directory / "data",
            {
                **QUICK,
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "authorizer.class.name": "acl",
                "admin.password.file": directory / "admin.password",
                **sets,
            },
        )
        self.properties(*ADMIN)

    def properties(self, user: str, password: str) -> Path:
        """Writes the client settings of a user to a file."""
        path = self.directory / f"{user}.properties"
        path.write_text(f"sasl.username={user}\nsasl.password={password}\n")
        return path

    def attempt(self, *arguments: str, who: str = "admin") -> subprocess.CompletedProcess[str]:
        command = [COMMAND, "--command-config", str(self.directory / f"{who}.properties")]
        command += [*arguments, "-b", self.process.bootstrap]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def run(self, *arguments: str, who: str = "admin") -> str:
        """Runs a command that must succeed; returns its output."""
        done = self.attempt(*arguments, who=who)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def add_user(self, name: str, password: str) -> None:
        path = self.directory / f"{name}.password"
        path.write_text(password + "\n")
        self.run("user", "set", name, "--password-file", str(path))
        self.properties(name, password)

    def add_key(self, user: str) -> tuple[str, str]:
        """Creates an access key; returns it and its secret."""
        made = json.loads(self.run("user", "key", "create", user, "--format", "json"))
        return made["access_key"], made["secret"]
