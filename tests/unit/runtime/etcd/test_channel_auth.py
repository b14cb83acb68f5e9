"""Users and passwords, against a real etcd with authentication switched on."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ports import Expect, Put
from penstock.runtime.etcd.config import EtcdConfig
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import EtcdProcess
from tests.run_with import run_with

pytestmark = pytest.mark.processes

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """Everyone needs a password; `penstock` may use what is below /ours/ only."""
    process = EtcdProcess(tmp_path_factory.mktemp("etcd") / "data")
    process.require_passwords({"penstock": PASSWORD}, "/ours/")
    yield process
    process.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def config(etcd: EtcdProcess, **others: str) -> EtcdConfig:
    fields: dict[str, Any] = {"user": "penstock", "password": PASSWORD, "prefix": "/ours/a"}
    return EtcdConfig((etcd.url,), **{**fields, **others})


@run_with(run)
async def test_right_password_opens_the_prefix(*, guarded: EtcdProcess) -> None:
    store = await EtcdStore.open(config(guarded, prefix="/ours/right"))
    revision = await store.commit([Expect("/k", 0)], [Put("/k", b"v")])
    assert revision is not None
    lease = await store.grant(60_000)
    assert await store.renew(lease)
    await store.revoke(lease)
    async for changes in store.watch("/", revision - 1):
        assert changes[0].value == b"v"
        break
    await store.close()


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"password": "wrong-secret"}, "check the user and the password"),
        ({"user": "missing"}, "check the user and the password"),
        ({"user": "", "password": ""}, "it requires a user and a password"),
        ({"prefix": "/theirs"}, "grant the user's role readwrite on the prefix"),
    ],
    ids=["password", "user", "none", "prefix"],
)
@run_with(run)
async def test_missing_permission_is_reported_without_the_password(
    *, guarded: EtcdProcess, others: dict[str, str], told: str
) -> None:
    with pytest.raises(ConnectionError) as refused:
        await EtcdStore.open(config(guarded, **others))
    assert told in str(refused.value)
    assert guarded.url in str(refused.value)
    assert "secret" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_token_that_ended_is_replaced_under_reads_commits_and_watches(tmp_path: Path) -> None:
    etcd = EtcdProcess(tmp_path / "etcd", ["--auth-token-ttl=1"])
    etcd.require_passwords({"penstock": PASSWORD}, "/ours/")

    async def main() -> None:
        store = await EtcdStore.open(config(etcd))
        base, _ = await store.range("/")
        seen: list[int] = []

        async def follow() -> None:
            async for changes in store.watch("/", base):
                seen.append(changes[0].revision)

        watch = asyncio.create_task(follow())
        await asyncio.sleep(2.5)  # Longer than a token lives.
        assert await store.commit([], [Put("/k", b"v")]) == base + 1
        await asyncio.sleep(2.5)
        assert await store.get("/k") is not None
        assert await store.commit([], [Put("/k", b"v")]) == base + 2
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        assert seen == [base + 1, base + 2]
        watch.cancel()
        await asyncio.wait([watch])
        await store.close()

    try:
        run(main)
    finally:
        etcd.stop()


def test_tokens_that_died_with_their_member_are_replaced(tmp_path: Path) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.require_passwords({"penstock": PASSWORD}, "/ours/")

    async def main() -> None:
        store = await EtcdStore.open(config(etcd))
        base, _ = await store.range("/")
        etcd.kill()
        etcd.start()
        await asyncio.sleep(0.05)  # The lost connections have been noticed.
        assert await store.commit([], [Put("/k", b"v")]) == base + 1
        async for changes in store.watch("/", base):
            assert changes[0].revision == base + 1
            break
        await store.close()

    try:
        run(main)
    finally:
        etcd.stop()


@run_with(run)
async def test_user_for_an_etcd_without_passwords_does_no_harm(*, etcd: EtcdProcess) -> None:
    store = await EtcdStore.open(config(etcd, prefix="/no-passwords"))
    assert await store.commit([], [Put("/k", b"v")]) is not None
    await store.close()
