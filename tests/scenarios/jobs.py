"""A worker as users write one, run by `penstock worker` in tests; it logs its actions to a file."""

import os
import time

from penstock import Message, Worker

worker = Worker(os.environ["JOBS_BROKERS"], group="jobs-workers", grace="10s")


def tell(text: str) -> None:
    with open(os.environ["JOBS_LOG"], "a") as log:
        log.write(text + "\n")


@worker.task("jobs", concurrency=4, retries=3, backoff="100ms")
def handle(message: Message) -> None:
    tell(f"begun {message.text} {message.attempt}")
    if message.text == "hang" and message.attempt == 1:
        time.sleep(600)
    time.sleep(float(os.environ.get("JOBS_SECONDS", "0")))
    tell(f"done {message.text} {message.attempt}")
