"""SQS through boto3: the same client with Penstock's SQS endpoint and with ElasticMQ.

One process sends, in batches of ten; consumers receive ten at a time and delete them, as threads of
`PROCESSES` processes, since boto3 does most of the work. Latency is measured separately, at
`SQS_PACE` messages per second, sent one by one.
"""

import multiprocessing
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
from bench.queues.cycles import SIZE, Cycles, percentile

SQS_MESSAGES = 5_000
SQS_PACE = 100
SQS_LATENCY_SECONDS = 5
BATCH = 10
PROCESSES = 2
PATIENCE_S = 120.0
READY_S = 60
_MAKING = threading.Lock()
"""Serializes the creation of clients by boto3's default session."""


@contextmanager
def elasticmq(jars: Path) -> Iterator[str]:
    """ElasticMQ from Maven Central, in memory by default; yields its endpoint."""
    if not jars.is_dir():
        raise PeerMissing("no jars of ElasticMQ (sh bench/queues/fetch_peers.sh)")
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


def client(endpoint: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=endpoint,
        region_name="elasticmq",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"max_attempts": 3}, max_pool_connections=4),
    )


class Consumers:
    """Threads in processes that receive and delete all messages, and record their ages."""

    def __init__(self, endpoint: str, url: str, consumers: int, count: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ready = context.Semaphore(0)
        self._left = context.Value("q", count)
        self._ended_at = context.Value("d", 0.0)  # 0 until finished.
        self._ages = context.Queue()
        shares = [len(range(at, consumers, PROCESSES)) for at in range(PROCESSES)]
        self._processes = [
            context.Process(
                target=_consume_all,
                args=(endpoint, url, share, self._ready, self._left, self._ended_at, self._ages),
                daemon=True,
            )
            for share in shares
            if share
        ]
        for process in self._processes:
            process.start()
        for _ in range(consumers):
            assert self._ready.acquire(timeout=PATIENCE_S)

    def wait(self) -> tuple[float, list[float]]:
        """Time of the last deletion, and the ages of all messages at receipt."""
        ages: list[float] = []
        for _ in self._processes:
            ages += self._ages.get(timeout=PATIENCE_S)
        for process in self._processes:
            process.join(PATIENCE_S)
        return self._ended_at.value, ages


def _consume_all(
    endpoint: str, url: str, threads: int, ready: Any, left: Any, ended_at: Any, out: Any
) -> None:
    ages: list[float] = []
    started = [
        threading.Thread(target=_consume, args=(endpoint, url, ready, left, ended_at, ages))
        for _ in range(threads)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    out.put(ages)


def _consume(
    endpoint: str, url: str, ready: Any, left: Any, ended_at: Any, ages: list[float]
) -> None:
    with _MAKING:
        sqs = client(endpoint)
    sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    ready.release()
    while not ended_at.value:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1)
        found = answer.get("Messages", [])
        if not found:
            continue
        now = time.time()
        entries = [
            {"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(found)
        ]
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        ages += [(now - float(one["Body"][:20])) * 1000 for one in found]
        with left.get_lock():
            left.value -= len(found)
            if left.value <= 0 and not ended_at.value:
                ended_at.value = time.monotonic()


def _body() -> str:
    return f"{time.time():020.6f}".ljust(SIZE, ".")


def cycles(endpoint: str, consumers: int, messages: int = SQS_MESSAGES) -> Cycles:
    sqs = client(endpoint)
    url = sqs.create_queue(QueueName=f"cycles-{consumers}-{time.monotonic_ns()}")["QueueUrl"]
    crowd = Consumers(endpoint, url, consumers, messages)
    began = time.monotonic()
    for start in range(0, messages, BATCH):
        entries = [
            {"Id": str(n), "MessageBody": _body()}
            for n in range(start, min(start + BATCH, messages))
        ]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    ended_at, _ = crowd.wait()
    rate = messages / (ended_at - began)
    paced = SQS_PACE * SQS_LATENCY_SECONDS
    crowd = Consumers(endpoint, url, consumers, paced)
    began = time.monotonic()
    for n in range(paced):
        time.sleep(max(0.0, began + n / SQS_PACE - time.monotonic()))
        sqs.send_message(QueueUrl=url, MessageBody=_body())
    _, ages = crowd.wait()
    sqs.delete_queue(QueueUrl=url)
    return Cycles(rate, percentile(ages, 0.99))
