"""Profile file: named clusters with their security settings, and the current profile.

The file is `$XDG_CONFIG_HOME/penstock/profiles.toml`, or below `~/.config`. It may hold passwords,
so it is written atomically and readable for its owner only. Users may edit it; errors in it name
the file.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from penstock.cli.terminal.errors import UserError

PROFILES_MAX = 1_000
NAME_CHARS_MAX = 100


@dataclass(frozen=True)
class Profile:
    brokers: str
    security: dict[str, str] = field(default_factory=dict)
    """Security settings by the names that Kafka clients use."""


@dataclass
class Profiles:
    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def require(self, name: str) -> Profile:
        found = self.by_name.get(name)
        if found is None:
            from penstock.cli.terminal.session import nearest

            close = nearest(name, self.by_name)
            hint = f"did you mean {close!r}?" if close else "see `penstock profile list`"
            raise UserError(f"there is no profile {name!r}; {hint}")
        return found


def path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "penstock" / "profiles.toml"


def read() -> Profiles:
    """Reads the profiles; without a file there are none."""
    import tomllib

    where = path()
    try:
        with where.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                print(
                    f"penstock: other users can read {where}, which may hold passwords; "
                    f"run `chmod 600 {where}`",
                    file=sys.stderr,
                )
            return _parsed(tomllib.load(file))
    except FileNotFoundError:
        return Profiles()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{where} is not a valid profile file: {error}") from None


def _parsed(document: dict[str, Any]) -> Profiles:
    found = {
        str(name): Profile(
            str(row["brokers"]),
            {str(key): str(value) for key, value in row.get("security", {}).items()},
        )
        for name, row in document.get("profiles", {}).items()
    }
    current = document.get("current")
    return Profiles(current if current in found else None, found)


def write(profiles: Profiles) -> None:
    """Replaces the file atomically: a crash leaves the old one or the new one."""
    where = path()
    where.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = where.with_suffix(f".{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # A temporary file of an earlier run may have other permissions.
            os.fchmod(file.fileno(), 0o600)
            file.write(_text(profiles))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(where)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _text(profiles: Profiles) -> str:
    lines = []
    if profiles.current is not None:
        lines += [f"current = {_quoted(profiles.current)}", ""]
    for name, profile in sorted(profiles.by_name.items()):
        lines += [f"[profiles.{_quoted(name)}]", f"brokers = {_quoted(profile.brokers)}"]
        if profile.security:
            lines += [f"[profiles.{_quoted(name)}.security]"]
            lines += [f"{_quoted(k)} = {_quoted(v)}" for k, v in sorted(profile.security.items())]
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Quotes a TOML string: JSON's syntax, plus an escape for DEL, which JSON leaves as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def chosen() -> tuple[str, Profile] | None:
    """Returns the profile that `--profile` or `PENSTOCK_PROFILE` names, else the current one."""
    context = click.get_current_context(silent=True)
    named = context.find_root().params.get("profile") if context is not None else None
    if named is None and not path().exists():
        return None
    profiles = read()
    name = named or profiles.current
    return None if name is None else (name, profiles.require(name))


def check_name(name: str) -> str:
    if not name or len(name) > NAME_CHARS_MAX or not name.isprintable() or name.startswith("-"):
        raise UserError(f"{name!r} is not a valid profile name; use one like prod or east-1")
    return name
