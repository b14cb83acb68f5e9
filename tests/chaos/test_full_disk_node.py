"""One node's disk is full: the cluster continues without it, and it returns when there is space.

The node's data directory is a small tmpfs of the test's own, as in `test_disk_full`; mounting needs
root, and without it the tests say so and skip.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import QUICK
from tests.chaos.cluster_view import wait_whole
from tests.chaos.load import Load
from tests.chaos.writers import create_topic
from tests.clusters import Nodes

DISK_MIB = 200
RESERVE_BYTES = 16 * 1024 * 1024
VICTIM = 1
GAP_S_MAX = 10.0
"""Far from what it takes, and from what waiting for the follower to lag would: 30 s."""

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    mount = tmp_path_factory.mktemp("small")
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "penstock-test", str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting a small tmpfs is not permitted here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


@pytest.fixture(scope="module")
def nodes(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = Nodes(
        tmp_path_factory.mktemp("full-disk") / "cluster",
        sets={**QUICK, "disk.reserve.bytes": RESERVE_BYTES},
        own={VICTIM: {"data": str(small_disk / "data")}},
    )
    try:
        yield nodes
    finally:
        nodes.stop()


def fill(disk: Path) -> None:
    """Takes all there is, down to the last page."""
    ballast = os.open(disk / "ballast", os.O_CREAT | os.O_WRONLY)
    for size in (1 << 20, 4096, 1):
        try:
            while True:
                os.write(ballast, bytes(size))
        except OSError:
            continue
    os.close(ballast)


@pytest.mark.parametrize("is_leader", [True, False], ids=["leader", "follower"])
def test_cluster_continues_when_one_disk_is_full(
    nodes: Nodes, small_disk: Path, topic: str, is_leader: bool
) -> None:
    replicas = [VICTIM, 2, 3] if is_leader else [2, 3, VICTIM]
    create_topic(nodes.bootstrap, topic, 1, replicas=replicas, min_insync_replicas="2")
    assert wait_whole(nodes, topic).leader == replicas[0]
    with Load(nodes.bootstrap, topic, readers=False, explain=nodes.all_logs) as load:
        load.wait_progress()
        moment = time.monotonic()
        fill(small_disk)
        time.sleep(1.0)
        load.wait_progress()
        gap_s = load.gap_since(moment)
        assert nodes.nodes[VICTIM].running, nodes.nodes[VICTIM].log()
        (small_disk / "ballast").unlink()
        wait_whole(nodes, topic)
        print(f"gap {gap_s:.2f} s, whole {time.monotonic() - moment:.1f} s after the disk was full")
        found = load.judge()
        assert found == [], "\n".join(map(str, found))
        assert load.errors == []
    assert gap_s < GAP_S_MAX
    assert "Traceback" not in nodes.nodes[VICTIM].log_path.read_text(errors="replace")
