"""TLS to a real etcd, which wants a certificate from its clients too."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop

from penstock.base.ports import Put
from penstock.runtime.etcd.config import EtcdConfig, Tls
from penstock.runtime.etcd.store import EtcdStore
from tests.etcd import EtcdProcess
from tests.run_with import run_with

pytestmark = pytest.mark.processes


class Secured:
    """An etcd behind TLS and the authority that both sides trust."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = trustme.CA()
        self.ca_file = str(directory / "ca.pem")
        self.authority.cert_pem.write_to_path(self.ca_file)
        server = self.issue("127.0.0.1")
        own = EtcdConfig(("https://127.0.0.1",), ca_file=self.ca_file, **self.issue("test"))
        options = [
            "--client-cert-auth",
            f"--trusted-ca-file={self.ca_file}",
            f"--cert-file={server['cert_file']}",
            f"--key-file={server['key_file']}",
        ]
        self.etcd = EtcdProcess(directory / "etcd", options, tls=Tls(own).context())

    def issue(self, name: str, common_name: str | None = None) -> dict[str, Any]:
        """A certificate and its key, as config fields."""
        cert = self.authority.issue_cert(name, common_name=common_name)
        cert_file, key_file = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        cert.cert_chain_pems[0].write_to_path(cert_file)
        cert.private_key_pem.write_to_path(key_file)
        return {"cert_file": str(cert_file), "key_file": str(key_file)}

    def config(self, **others: Any) -> EtcdConfig:
        fields = {"ca_file": self.ca_file, "prefix": "/tls", **others}
        return EtcdConfig((self.etcd.url,), **fields)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    one = Secured(tmp_path)
    yield one
    one.etcd.stop()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(test(), 60))


async def refusal(config: EtcdConfig) -> str:
    with pytest.raises(ConnectionError) as refused:
        await EtcdStore.open(config)
    return str(refused.value)


@run_with(run)
async def test_both_sides_show_a_certificate_and_a_watch_works(*, secured: Secured) -> None:
    store = await EtcdStore.open(secured.config(**secured.issue("node-1")))
    revision = await store.commit([], [Put("/k", b"v" * 100_000)])
    assert revision is not None
    async for changes in store.watch("/", revision - 1):
        assert changes[0].value == b"v" * 100_000
        break
    await store.close()


@run_with(run)
async def test_certificate_errors_are_distinguished(*, secured: Secured, tmp_path: Path) -> None:
    outsider = trustme.CA()
    outsider.cert_pem.write_to_path(tmp_path / "outsider.pem")

    own = secured.issue("node-1")
    told = await refusal(secured.config(**own, ca_file=str(tmp_path / "outsider.pem")))
    assert "TLS failed" in told
    assert "certificate" in told
    told = await refusal(secured.config())
    assert secured.etcd.url in told, "it closes the connection on clients without one"
    told = await refusal(secured.config(**own, ca_file=str(tmp_path / "missing.pem")))
    assert "missing.pem" in told
    plain = EtcdConfig((secured.etcd.url.replace("https", "http"),))
    assert plain.endpoints[0] in await refusal(plain)


@run_with(run)
async def test_common_name_that_the_gateway_refuses_is_explained(*, secured: Secured) -> None:
    secured.etcd.require_passwords({"penstock": "secret"}, "/tls/")

    user = {"user": "penstock", "password": "secret"}
    named = secured.issue("node-1", common_name="penstock")
    assert "without a common name" in await refusal(secured.config(**named, **user))
    store = await EtcdStore.open(secured.config(**secured.issue("node-2"), **user))
    assert await store.commit([], [Put("/k", b"v")]) is not None
    await store.close()


@run_with(run)
async def test_certificate_that_was_replaced_is_used_for_the_next_connection(
    *, secured: Secured
) -> None:
    config = secured.config(**secured.issue("node-1"))
    tls = Tls(config)
    before = tls.context()
    assert tls.context() is before
    secured.issue("node-1")
    assert tls.context() is not before
