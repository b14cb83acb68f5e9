"""Traffic over TLS, compared with Kafka: the same client and certificate, in turns.

Neither side can use sendfile: every byte is encrypted first.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

from bench import load, proc
from bench.measures import GB, Figures, Sizes, settle
from bench.peers.kafka import KafkaProcess, free_port
from bench.sides import SETTINGS, Process, Say, Side, topic
from tests.brokers import PenstockProcess

PARTITIONS = 6
SIZE = 1024


class Certificate:
    """Certificate of both sides, and its CA for clients."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        ca = trustme.CA()
        self.ca = directory / "ca.pem"
        ca.cert_pem.write_to_path(str(self.ca))
        leaf = ca.issue_cert("127.0.0.1", "localhost")
        chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        # Java supports PKCS#8 only.
        shown = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        self.server = directory / "server.pem"
        self.server.write_bytes(shown + chain)

    @property
    def client(self) -> dict[str, object]:
        return {"security.protocol": "ssl", "ssl.ca.location": self.ca}


def sides(certificate: Certificate, names: list[str], say: Say) -> list[Side]:
    """Both sides, each with a plain listener for administration and one with TLS."""

    def penstock(data_dir: Path) -> Process:
        return _Penstock(data_dir, certificate)

    def kafka(data_dir: Path) -> Process:
        return _Kafka(data_dir, certificate, say)

    known = {"penstock": penstock, "kafka": kafka}
    return [Side(name, known[name]) for name in names]


class _Penstock(PenstockProcess):
    def __init__(self, data_dir: Path, certificate: Certificate) -> None:
        plain, self.tls_port = free_port(), free_port()
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{self.tls_port}"
        sets = {**SETTINGS, "listeners": listeners, "ssl.keystore.location": certificate.server}
        super().__init__(data_dir, sets, started=False)
        self.bootstrap = f"127.0.0.1:{plain}"


class _Kafka(KafkaProcess):
    def __init__(self, data_dir: Path, certificate: Certificate, say: Say) -> None:
        plain, self.tls_port, inner = free_port(), free_port(), free_port()
        addresses = f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{self.tls_port}"
        sets = {
            **SETTINGS,
            "listeners": f"{addresses},CONTROLLER://127.0.0.1:{inner}",
            "advertised.listeners": addresses,
            "controller.quorum.voters": f"1@127.0.0.1:{inner}",
            "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": certificate.server,
        }
        super().__init__(data_dir, sets, say=say, started=False, port=plain)


@contextmanager
def running(found: list[Side], root: Path) -> Iterator[dict[str, Process]]:
    with ExitStack() as stack:
        yield {side.name: stack.enter_context(side.running(root)) for side in found}


def traffic(process: Process, certificate: Certificate, sizes: Sizes) -> Figures:
    """Produces over TLS, then reads all back."""
    count = sizes.messages(SIZE)
    figures: Figures = {}
    assert isinstance(process, _Penstock | _Kafka)
    with topic(process.bootstrap, PARTITIONS) as name:
        for verb in ("produce", "consume"):
            settle(sizes if verb == "produce" else None)
            more = load.PRODUCER if verb == "produce" else {}
            with proc.watched(process.pid) as used:
                done = load.run(
                    verb,
                    f"127.0.0.1:{process.tls_port}",
                    name,
                    PARTITIONS,
                    count,
                    SIZE,
                    settings={**more, **certificate.client},
                )
            figures[f"tls_{verb}_rate"] = done["messages"] / done["seconds"]
            figures[f"tls_{verb}_cpu"] = used.cpu_s / (count * SIZE / GB)
    return figures
