"""SQS through boto3: the same client against Penstock's door and against ElasticMQ."""

import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from bench.peers.kafka import PeerMissing, free_port
from bench.queues.cycles import SIZE, SQS_MESSAGES, Cycles, percentile

BATCH = 10
PATIENCE_S = 180.0
READY_S = 60


@contextmanager
def elasticmq(jars: Path) -> Iterator[str]:
    """ElasticMQ from Maven Central, in memory as it ships; its endpoint."""
    if not jars.is_dir():
        raise PeerMissing(f"no jars of ElasticMQ in {jars}")
    directory = Path(tempfile.mkdtemp(prefix="elasticmq"))
    port = free_port()
    config = directory / "elasticmq.conf"
    config.write_text(
        'include classpath("application.conf")\n'
        f'rest-sqs {{ bind-hostname = "127.0.0.1", bind-port = {port} }}\n'
        f"rest-stats {{ enabled = false }}\n"
        f'node-address {{ host = "127.0.0.1", port = {port} }}\n'
    )
    server = subprocess.Popen(
        ["java", f"-Dconfig.file={config}", "-cp", f"{jars}/*", "org.elasticmq.server.Main"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        _wait(endpoint)
        yield endpoint
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def _wait(endpoint: str) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(endpoint, timeout=1).close()
            return
        except urllib.error.HTTPError as answered:
            answered.close()
            return
        except OSError:
            time.sleep(0.2)
    raise PeerMissing("ElasticMQ did not start")


def _client(endpoint: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="elasticmq",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"max_attempts": 3}, max_pool_connections=4),
    )


class _Crowd:
    """Consumers that receive, count and delete, ten at a time."""

    def __init__(self, endpoint: str, url: str, consumers: int, count: int) -> None:
        self.ages_ms: list[float] = []
        self.left = count
        self.ended_at = 0.0
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, args=(endpoint, url), daemon=True)
            for _ in range(consumers)
        ]
        for thread in self._threads:
            thread.start()

    def _consume(self, endpoint: str, url: str) -> None:
        client = _client(endpoint)
        while not self._done.is_set():
            answer = client.receive_message(
                QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1
            )
            found = answer.get("Messages", [])
            if not found:
                continue
            now = time.time()
            entries = [
                {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(found)
            ]
            client.delete_message_batch(QueueUrl=url, Entries=entries)
            with self._lock:
                self.ages_ms += [(now - float(one["Body"][:20])) * 1000 for one in found]
                self.left -= len(found)
                if self.left <= 0 and not self._done.is_set():
                    self.ended_at = time.monotonic()
                    self._done.set()

    def wait(self) -> None:
        assert self._done.wait(PATIENCE_S), f"{self.left} messages never came"
        for thread in self._threads:
            thread.join(10)


def cycles(endpoint: str, consumers: int, messages: int = SQS_MESSAGES) -> Cycles:
    client = _client(endpoint)
    name = f"cycles-{consumers}-{time.monotonic_ns()}"
    url = client.create_queue(QueueName=name)["QueueUrl"]
    crowd = _Crowd(endpoint, url, consumers, messages)
    began = time.monotonic()
    for start in range(0, messages, BATCH):
        entries = [
            {"Id": str(n), "MessageBody": f"{time.time():020.6f}".ljust(SIZE, ".")}
            for n in range(start, min(start + BATCH, messages))
        ]
        client.send_message_batch(QueueUrl=url, Entries=entries)
    crowd.wait()
    client.delete_queue(QueueUrl=url)
    return Cycles(messages / (crowd.ended_at - began), percentile(crowd.ages_ms, 0.99))
