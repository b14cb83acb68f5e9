"""Runs bandit on the source: every finding must be reviewed, and no review stale.

`make lint` calls it. A new finding is either fixed or added to `reviewed.txt` with why it is fine.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REVIEWED = HERE / "reviewed.txt"


def reviewed() -> Counter[str]:
    """Reviewed number of findings, by file and rule."""
    rows: Counter[str] = Counter()
    for line in REVIEWED.read_text().splitlines():
        if line and not line.startswith("#"):
            path, rule, count, why = line.split(maxsplit=3)
            assert why, line
            rows[f"{path} {rule}"] = int(count)
    return rows


def found() -> tuple[Counter[str], list[str]]:
    command = [
        sys.executable,
        "-m",
        "bandit",
        "-q",
        "-r",
        "src",
        "-c",
        "pyproject.toml",
        "-f",
        "json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout:
        sys.exit(f"bandit did not run:\n{done.stderr}")
    rows: Counter[str] = Counter()
    lines = []
    for one in json.loads(done.stdout)["results"]:
        name = f"{one['filename']} {one['test_id']}"
        rows[name] += 1
        lines.append(f"{one['filename']}:{one['line_number']} {one['test_id']} {one['issue_text']}")
    return rows, lines


def main() -> None:
    known = reviewed()
    rows, lines = found()
    new = [line for line in lines if rows[_name(line)] > known[_name(line)]]
    stale = [name for name, count in known.items() if rows[name] < count]
    for line in new:
        print(f"not reviewed: {line}")
    for name in stale:
        print(f"reviewed, but not found any more: {name}")
    if new or stale:
        sys.exit(f"fix it, or bring {REVIEWED.relative_to(ROOT)} up to date with why it is fine")
    print(f"bandit: {sum(rows.values())} findings, all reviewed")


def _name(line: str) -> str:
    where, rule = line.split()[:2]
    return f"{where.rpartition(':')[0]} {rule}"


if __name__ == "__main__":
    main()
