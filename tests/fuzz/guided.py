"""Coverage-guided fuzzing of the decoders: `python -m tests.fuzz.guided --seconds 60 [NAME ...]`.

Needs atheris. Each decoder has a process of its own, since libFuzzer ends the one it runs in. New
inputs that reach new code are kept in --corpus (default: .cache/fuzz); what breaks a decoder is
written to tests/fuzz/corpus/NAME, where the tests find it from then on.
"""

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CORPUS = HERE / "corpus"
INPUT_BYTES_MAX = 4096


def fuzz(name: str, corpus: Path, arguments: list[str]) -> None:
    """Never returns."""
    import atheris

    with atheris.instrument_imports(include=["penstock"]):
        from tests.fuzz import decoders

    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(decoders.seeds(name)):
        (corpus / f"seed-{number}").write_bytes(seed)
    found = CORPUS / name
    found.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            str(found),
            f"-artifact_prefix={found}/",
            f"-max_len={INPUT_BYTES_MAX}",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            *arguments,
        ],
        lambda data: decoders.run(name, data),
    )
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="decoders; all, if none is named")
    parser.add_argument("--seconds", type=int, default=30, help="for each decoder")
    parser.add_argument("--runs", type=int, default=-1, help="at most so many inputs for each")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".cache" / "fuzz")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    limits = [f"-max_total_time={given.seconds}", f"-runs={given.runs}"]
    if given.alone:
        (name,) = given.names
        fuzz(name, given.corpus / name, limits)
    from tests.fuzz.decoders import TARGETS

    failed = []
    for name in given.names or TARGETS:
        command = [sys.executable, "-m", "tests.fuzz.guided", "--alone", name]
        command += ["--seconds", str(given.seconds), "--runs", str(given.runs)]
        command += ["--corpus", str(given.corpus)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        stats = dict(
            line.removeprefix("stat::").split(":")
            for line in done.stderr.splitlines()
            if line.startswith("stat::")
        )
        runs = stats.get("number_of_executed_units", "?").strip()
        print(f"{name}: {runs} inputs, {'ok' if done.returncode == 0 else 'FAILED'}", flush=True)
        if done.returncode != 0:
            failed.append(name)
            print(done.stdout[-3000:] + done.stderr[-3000:], flush=True)
    sys.exit(f"decoders that failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
