"""Secrets from a file, an environment variable, or the output of a command.

    file:/run/secrets/kek    env:PENSTOCK_KEK    command:vault kv get -field=kek secret/penstock

A command runs without a shell, for at most `COMMAND_SECONDS_MAX`. Errors never contain the content.
Blocks: call it through Workers.
"""

import os
import shlex
import subprocess

COMMAND_SECONDS_MAX = 30.0
SECRET_BYTES_MAX = 64 * 1024


class NoSecret(Exception):
    """The secret cannot be read; the message says why, and what to do."""


def read_secret(source: str) -> str:
    kind, separator, rest = source.partition(":")
    read = {"file": _read_file, "env": _read_variable, "command": _read_command}.get(kind)
    if read is None or not separator or not rest:
        raise NoSecret(f"invalid source {source!r}: use file:PATH, env:NAME or command:COMMAND")
    try:
        return read(rest)
    except UnicodeDecodeError:
        raise NoSecret(f"{source}: the content is not ASCII text") from None


def _read_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(SECRET_BYTES_MAX).decode("ascii")
    except OSError as error:
        raise NoSecret(f"cannot read {path}: {error.strerror}") from error


def _read_variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise NoSecret(f"the environment variable {name} is not set")
    return value


def _read_command(command: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(  # noqa: S603 - the operator's own words, and no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
    except ValueError as error:
        raise NoSecret(f"command {command!r}: {error}") from error
    except OSError as error:
        raise NoSecret(f"cannot run {words[0]!r}: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise NoSecret(
            f"command {words[0]!r} did not end within {COMMAND_SECONDS_MAX:.0f} s"
        ) from None
    if done.returncode:
        raise NoSecret(f"command {words[0]!r} failed with exit code {done.returncode}")
    return done.stdout[:SECRET_BYTES_MAX].decode("ascii")
