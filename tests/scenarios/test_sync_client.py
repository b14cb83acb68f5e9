"""The synchronous client against a real broker process."""

import threading

import pytest

from penstock import Outgoing, Refused, SyncClient, Unreachable
from tests.conftest import FreshBroker


def test_queue_is_iterated_by_several_threads(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    seen: list[int] = []
    with SyncClient(broker.bootstrap) as client:
        client.create_topic("jobs", 3)
        client.publish_many("jobs", [Outgoing(payload=n, key=str(n)) for n in range(300)])
        queue = client.queue("jobs", group="workers")

        def work() -> None:
            for message in queue:
                message.ack()
                seen.append(message.json())
                if len(seen) >= 300:
                    queue.close()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert sorted(seen) == list(range(300))
        assert client.poll("jobs", "workers", wait=0.5) == []


def test_sync_client_covers_the_async_client(fresh_broker: FreshBroker) -> None:
    broker = fresh_broker()
    with SyncClient(broker.bootstrap) as client:
        client.create_topic("jobs", 1, retention_ms=3_600_000)
        assert client.publish("jobs", {"n": 1}, key="k").offset == 0
        (message,) = client.poll("jobs", "workers", wait=30)
        message.extend()
        message.nack(delay=0.1)
        (message,) = client.poll("jobs", "workers", wait=30)
        assert (message.attempt, message.json(), message.key) == (2, {"n": 1}, b"k")
        message.reject(ValueError("bad"))
        with pytest.raises(Refused, match="settled before"):
            message.ack()
        (dead_letter,) = client.poll("jobs.dlq", "look", wait=30)
        assert dead_letter.header("penstock-dlq-error-message") == "bad"
        dead_letter.ack()
        client.publish_many("jobs", range(1, 5))
        with client.consume("jobs", "readers") as log:
            assert next(log).json() == {"n": 1}
            assert next(log).json() == 1
            log.commit()
            assert log.seek("jobs", 0, 4) == 4
            assert next(log).json() == 4
        assert client.seek("jobs", 0, 0, group="readers") == 0
        with client.consume("jobs", "readers", delivery="exactly-once") as log:
            log.publish("copies", next(log).payload)
        with client.consume("copies") as log:
            assert next(log).json() == {"n": 1}
        client.configure_group("workers", {"share.retry.backoff.ms": "5"})
        client.flush()
        client.delete_topic("jobs")
        with pytest.raises(Refused, match="does not exist"):
            client.poll("jobs", "others")
    with pytest.raises(RuntimeError, match="not connected"):
        client.publish("jobs", b"x")


def test_lease_is_renewed_while_the_caller_works(fresh_broker: FreshBroker) -> None:
    short = {
        "group.share.min.record.lock.duration.ms": 1_000,
        "group.share.record.lock.duration.ms": 1_000,
    }
    broker = fresh_broker(sets=short)
    with SyncClient(broker.bootstrap) as client, SyncClient(broker.bootstrap) as other:
        client.create_topic("jobs", 1)
        client.publish("jobs", b"slow")
        (message,) = client.poll("jobs", "workers", wait=30)
        # The work takes four leases; the client keeps them in a thread of its own.
        assert other.poll("jobs", "workers", wait=4) == []
        message.ack()
        assert other.poll("jobs", "workers", wait=2) == []


def test_absent_broker_is_reported_at_once() -> None:
    with pytest.raises(Unreachable, match="penstock up"):
        SyncClient("127.0.0.1:1").connect()
