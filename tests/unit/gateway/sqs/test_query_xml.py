"""Responses of the query protocol, read by an independent parser."""

from xml.etree import ElementTree

from penstock.gateway.sqs.query_xml import SNS_NAMESPACE, SQS_NAMESPACE, write_error, write_result


def parsed(body: bytes, namespace: str) -> ElementTree.Element:
    return ElementTree.fromstring(body.replace(f' xmlns="{namespace}"'.encode(), b""))


def test_sqs_repeats_list_elements_and_writes_tables_as_pairs() -> None:
    body = write_result(
        "ReceiveMessage",
        {
            "Messages": [
                {
                    "Body": "<a>&\r\n",
                    "Attributes": {"SentTimestamp": "1"},
                    "MessageAttributes": {"b": {"DataType": "Binary", "BinaryValue": b"\x00"}},
                },
                {"Body": "b"},
            ]
        },
        "id-1",
        namespace=SQS_NAMESPACE,
    )
    root = parsed(body, SQS_NAMESPACE)
    assert root.tag == "ReceiveMessageResponse"
    assert [one.text for one in root.findall("ReceiveMessageResult/Message/Body")] == [
        "<a>&\r\n",
        "b",
    ]
    first = root.find("ReceiveMessageResult/Message")
    assert first is not None
    assert first.findtext("Attribute/Name") == "SentTimestamp"
    assert first.findtext("Attribute/Value") == "1"
    assert first.findtext("MessageAttribute/Value/BinaryValue") == "AA=="
    assert root.findtext("ResponseMetadata/RequestId") == "id-1"


def test_empty_result_has_its_elements() -> None:
    body = write_result("ReceiveMessage", {}, "id", namespace=SQS_NAMESPACE)
    result = parsed(body, SQS_NAMESPACE).find("ReceiveMessageResult")
    assert result is not None
    assert len(result) == 0


def test_batch_rows_are_named_after_the_action() -> None:
    body = write_result(
        "DeleteMessageBatch",
        {"Successful": [{"Id": "1"}], "Failed": [{"Id": "2", "SenderFault": True}]},
        "id",
        namespace=SQS_NAMESPACE,
    )
    result = parsed(body, SQS_NAMESPACE).find("DeleteMessageBatchResult")
    assert result is not None
    assert result.findtext("DeleteMessageBatchResultEntry/Id") == "1"
    assert result.findtext("BatchResultErrorEntry/SenderFault") == "true"


def test_sns_writes_lists_as_members_and_tables_as_entries() -> None:
    body = write_result(
        "GetTopicAttributes",
        {"Attributes": {"Owner": "1"}, "Topics": [{"TopicArn": "a"}, {"TopicArn": "b"}]},
        "id",
        namespace=SNS_NAMESPACE,
    )
    result = parsed(body, SNS_NAMESPACE).find("GetTopicAttributesResult")
    assert result is not None
    assert result.findtext("Attributes/entry/key") == "Owner"
    assert result.findtext("Attributes/entry/value") == "1"
    assert [one.text for one in result.findall("Topics/member/TopicArn")] == ["a", "b"]


def test_error_has_code_message_and_fault() -> None:
    body = write_error("Code", "why & how", "id", is_sender=False, namespace=SQS_NAMESPACE)
    root = parsed(body, SQS_NAMESPACE)
    assert [root.findtext(f"Error/{tag}") for tag in ("Type", "Code", "Message")] == [
        "Receiver",
        "Code",
        "why & how",
    ]
