"""The JDK's HTTP client, which offers h2c with every request, at each dialect of the HTTP port."""

import json
from collections.abc import Iterator

import pytest

from tests.brokers import QUICK, PenstockProcess
from tests.clients.javas import Jvm

pytestmark = [pytest.mark.clients, pytest.mark.java]
SETS = {"share.coordinator.state.topic.num.partitions": 1, "offsets.topic.num.partitions": 1}
JSON = ("content-type", "application/json")
FORM = ("content-type", "application/x-www-form-urlencoded")
AMZ_JSON = ("content-type", "application/x-amz-json-1.0")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockProcess]:
    process = PenstockProcess(tmp_path_factory.mktemp("broker") / "data", {**QUICK, **SETS})
    yield process
    process.stop()


@pytest.fixture(scope="module")
def jvm() -> Iterator[Jvm]:
    started = Jvm()
    yield started
    started.close()


@pytest.mark.parametrize(
    ("path", "body", "headers", "answer"),
    [
        ("/topics/t/messages", '{"payload": "a"}', JSON, '"offset"'),
        (
            "/subjects/s/versions",
            json.dumps({"schema": '{"type": "string"}'}),
            JSON,
            '"id"',
        ),
        ("/", '{"QueueName": "q"}', (*AMZ_JSON, "x-amz-target", "AmazonSQS.CreateQueue"), "/q"),
        ("/", "Action=CreateTopic&Name=n&Version=2010-03-31", FORM, ":n<"),
        ("/topics", '{"name": "made"}', (*JSON, "x-penstock-console", "1"), '"made"'),
    ],
    ids=["json", "registry", "sqs", "sns", "console"],
)
def test_body_of_the_jdk_client_arrives(
    jvm: Jvm, broker: PenstockProcess, path: str, body: str, headers: tuple[str, ...], answer: str
) -> None:
    said = jvm.run("penstock.clients.HttpPost", broker.http + path, body, *headers)
    assert said.startswith("20"), said
    assert answer in said
