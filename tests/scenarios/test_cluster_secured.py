"""Three nodes that authenticate all peers, each other included."""

from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.brokers import QUICK
from tests.clusters import Nodes
from tests.etcd import require_etcd

TOPIC = "guarded"
COUNT = 200


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("files")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(directory / "ca.pem"))
    leaf = ca.issue_cert("127.0.0.1", "localhost")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    (directory / "password").write_text("correct horse\n")
    admin = ca.issue_cert("admin@example.org", common_name="admin")
    admin.private_key_and_cert_chain_pem.write_to_path(str(directory / "admin.pem"))
    return directory


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL", "SSL"])
def test_nodes_authenticate_each_other_and_refuse_outsiders(
    tmp_path: Path, files: Path, protocol: str
) -> None:
    require_etcd()
    sets = {
        **QUICK,
        "listeners": f"{protocol}://127.0.0.1:0",
        "ssl.keystore.location": files / "server.pem",
        "ssl.truststore.location": files / "ca.pem",
        "ssl.client.auth": "required" if protocol == "SSL" else "none",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)(,.*)?$/$1/,DEFAULT",
        "authorizer.class.name": "acl",
        "admin.password.file": files / "password",
    }
    nodes = Nodes(tmp_path / "cluster", 3, sets)
    try:
        admin = {
            "bootstrap.servers": nodes.bootstrap,
            "security.protocol": protocol,
            "ssl.ca.location": str(files / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": "correct horse",
            "log_level": 0,
        }
        if protocol == "SSL":
            admin["ssl.certificate.location"] = admin["ssl.key.location"] = str(files / "admin.pem")
        new = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        client = AdminClient(admin)
        client.create_topics([new], request_timeout=30)[TOPIC].result(60)
        outcomes = written(admin)
        assert outcomes == [None] * COUNT
        # The leader dies: what was acknowledged was copied to a node that let it in.
        leader = client.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].leader
        nodes.nodes[leader].kill()
        assert read(admin) == COUNT
        outsider = {"bootstrap.servers": nodes.bootstrap, "log_level": 0}
        imposter = {**admin, "sasl.username": "__node", "sasl.password": "guess"}
        # Without SASL it is the certificate that counts, and this one is an administrator's.
        for settings in (outsider,) if protocol == "SSL" else (outsider, imposter):
            refused = written({**settings, "message.timeout.ms": 3_000}, 1)[0]
            assert refused is not None, "an outsider was let in"
    finally:
        nodes.stop()


def written(settings: dict[str, object], count: int = COUNT) -> list[KafkaError | None]:
    outcomes: list[KafkaError | None] = []
    producer = Producer(settings)
    for n in range(count):
        producer.produce(TOPIC, b"%d" % n, on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(60)
    return outcomes


def read(settings: dict[str, object]) -> int:
    consumer = Consumer({**settings, "group.id": "readers"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        return sum(
            message.error() is None for message in consumer.consume(COUNT, timeout=60) if message
        )
    finally:
        consumer.close()
