"""A seed is a run: the same in this process, in another one, and with other string hashes."""

import os
import subprocess
import sys

from tests.sim.log_workload import run_seed

SCRIPT = "from tests.sim.log_workload import run_seed; print(run_seed(3))"


def test_seed_gives_the_same_run_in_every_process() -> None:
    outputs = {str(run_seed(3)), str(run_seed(3))}
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout.strip())
    assert len(outputs) == 1, outputs
    assert str(run_seed(4)) not in outputs
