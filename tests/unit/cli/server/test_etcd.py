"""etcd as a child: found or missed with a word, started, stopped, started again."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ports import Put
from penstock.cli.server.etcd import BUILT, EtcdFailed, find_etcd, start_etcd
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import require_etcd

pytestmark = pytest.mark.processes


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 120))


def pretend(path: Path, version: str) -> str:
    path.write_text(f'#!/bin/sh\necho "etcd Version: {version}"\n')
    path.chmod(0o755)
    return str(path)


def test_the_program_named_by_the_environment_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = pretend(tmp_path / "new", "3.6.0")
    monkeypatch.setenv("PENSTOCK_ETCD", new)
    assert find_etcd() == new
    for unfit, told in (
        (pretend(tmp_path / "old", "3.4.23"), "is 3.4.23"),
        (str(tmp_path / "missing"), "is not etcd"),
        (sys.executable, "is not etcd"),
    ):
        monkeypatch.setenv("PENSTOCK_ETCD", unfit)
        with pytest.raises(EtcdFailed) as missing:
            find_etcd()
        assert f"{unfit} {told}" in str(missing.value)
        assert "https://github.com/etcd-io/etcd/releases" in str(missing.value)


def test_an_old_one_on_the_path_does_not_hide_the_one_that_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_ETCD", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    pretend(tmp_path / "etcd", "3.4.23")
    with contextlib.suppress(EtcdFailed):  # None was built where etcd is on the PATH.
        assert BUILT in find_etcd()
    new = pretend(tmp_path / "etcd", "3.7.1")
    assert find_etcd() == new


def test_the_version_looked_for_is_the_one_that_is_built() -> None:
    pinned = Path(__file__).parents[4] / "tools" / "etcd" / "go.mod"
    assert f"require go.etcd.io/etcd/server/v3 v{BUILT}\n" in pinned.read_text()


def test_what_was_committed_is_there_after_a_stop_and_a_start(tmp_path: Path) -> None:
    binary = require_etcd()

    async def main() -> None:
        data = str(tmp_path / "etcd")
        child = await start_etcd(data, binary=binary)
        store = await EtcdStore.open(EtcdConfig((child.url,)))
        revision = await store.commit([], [Put("/a", b"1")])
        await store.close()
        await child.stop()
        await child.stop()
        again = await start_etcd(data, binary=binary)
        store = await EtcdStore.open(EtcdConfig((again.url,)))
        entry = await store.get("/a")
        assert entry is not None
        assert entry.revision == revision
        await store.close()
        await again.stop()

    run(main())


def test_its_end_is_noticed(tmp_path: Path) -> None:
    binary = require_etcd()

    async def main() -> None:
        child = await start_etcd(str(tmp_path / "etcd"), binary=binary)
        os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        await child.stop()

    run(main())


def test_an_etcd_that_cannot_start_says_why(tmp_path: Path) -> None:
    binary = require_etcd()

    async def main() -> None:
        child = await start_etcd(str(tmp_path / "one"), binary=binary)
        taken = int(child.url.rpartition(":")[2])
        with pytest.raises(EtcdFailed, match=f":{taken}: Address already in use"):
            await start_etcd(str(tmp_path / "two"), taken, binary=binary)
        await child.stop()
        damaged = tmp_path / "three" / "member"
        damaged.parent.mkdir()
        damaged.write_text("this was a directory")
        with pytest.raises(EtcdFailed) as failed:
            await start_etcd(str(damaged.parent), binary=binary)
        assert "etcd ended at once" in str(failed.value)
        assert "three.log" in str(failed.value)
        assert "not a directory" in str(failed.value)

    run(main())


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
def test_etcd_ends_with_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import asyncio\n"
        "from penstock.cli.server.etcd import start_etcd\n"
        "async def main():\n"
        f"    child = await start_etcd({str(tmp_path / 'etcd')!r}, binary={require_etcd()!r})\n"
        "    print(child.pid, flush=True)\n"
        "    await child.wait()\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()

    async def main() -> None:
        while _is_running(pid):
            await asyncio.sleep(0.01)

    run(main())


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
