"""Answers of the query protocol, read by another parser than ours."""

from xml.etree import ElementTree

from penstock.gateway.sqs.query_xml import SNS_NAMESPACE, SQS_NAMESPACE, write_error, write_result


def parsed(body: bytes, namespace: str) -> ElementTree.Element:
    return ElementTree.fromstring(body.replace(f' xmlns="{namespace}"'.encode(), b""))


def test_lists_are_repeated_and_tables_are_pairs_in_sqs() -> None:
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


def test_a_result_without_anything_in_it_is_there_all_the_same() -> None:
    body = write_result("ReceiveMessage", {}, "id", namespace=SQS_NAMESPACE)
    result = parsed(body, SQS_NAMESPACE).find("ReceiveMessageResult")
    assert result is not None
    assert len(result) == 0


def test_rows_of_a_batch_are_named_after_the_action() -> None:
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


def test_lists_have_members_and_tables_entries_in_sns() -> None:
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


def test_an_error_says_code_message_and_whose_fault_it_is() -> None:
    body = write_error("Code", "why & how", "id", is_sender=False, namespace=SQS_NAMESPACE)
    root = parsed(body, SQS_NAMESPACE)
    assert [root.findtext(f"Error/{tag}") for tag in ("Type", "Code", "Message")] == [
        "Receiver",
        "Code",
        "why & how",
    ]
