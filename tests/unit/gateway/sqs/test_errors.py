"""Errors as recorded from Amazon: names, codes and texts, in both protocols.

The exchanges were recorded by other projects with Amazon's service.
"""

import json
from typing import Any

import pytest

from tests.run_with import run_with
from tests.unit.gateway.sqs.sdk import Sdk, failure, with_sdk

VERSION = "2012-11-05"
INVALID = ("InvalidParameterValueException", "InvalidParameterValue")
MISSING = ("MissingRequiredParameterException", "MissingParameter")
ATTRIBUTE_NAME = ("InvalidAttributeName", "InvalidAttributeName")
FOR_TYPE = "The request include parameter that is not valid for this queue type."


def ours(name: str) -> tuple[str, str]:
    return name, f"AWS.SimpleQueueService.{name}"


def text(value: str) -> dict[str, Any]:
    return {"MessageAttributes": {"a": {"DataType": "String", "StringValue": value}}}


def of_value(name: str, value: object, reason: str) -> str:
    return f"Value {value} for parameter {name} is invalid. Reason: {reason}"


LONG = "a" * 129
ID_RULE = "{} can only include alphanumeric and punctuation characters. 1 to 128 in length."
FIFO_NAME = (
    "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
    "must end with .fifo suffix and be 1 to 80 in length"
)
NAME = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
EMPTY = "There should be at least one {} in the request."
REPEATED = [{"Id": "1", "MessageBody": "m"}] * 2
BAD_ID = (
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be "
    "at most 80 letters long."
)
NO_DEDUP_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId "
    "provided explicitly"
)
LARGE = [{"Id": str(n), "MessageBody": "m" * 524_289} for n in range(2)]
ENTRY = {"Id": "1", "MessageBody": "m", "MessageGroupId": "g", "MessageDeduplicationId": "d"}

REFUSED: list[tuple[str, str, dict[str, Any], tuple[str, str], str]] = [
    ("jobs", "SendMessage", {}, MISSING, "The request must contain the parameter MessageBody."),
    ("jobs", "SendMessage", {"MessageBody": ""}, MISSING,
     "The request must contain the parameter MessageBody."),
    ("jobs", "ReceiveMessage", {"MaxNumberOfMessages": 11}, INVALID,
     of_value("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided.")),
    ("jobs", "ReceiveMessage", {"WaitTimeSeconds": 21}, INVALID,
     of_value("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided.")),
    ("jobs", "SendMessage", {"MessageBody": "m", "MessageGroupId": LONG}, INVALID,
     of_value("MessageGroupId", LONG, ID_RULE.format("MessageGroupId"))),
    ("jobs", "SendMessage", {"MessageBody": "m", "MessageDeduplicationId": "a b"}, INVALID,
     of_value("MessageDeduplicationId", "a b", ID_RULE.format("MessageDeduplicationId"))),
    ("jobs", "SendMessage", {"MessageBody": "m", "MessageDeduplicationId": "d"}, INVALID,
     of_value("MessageDeduplicationId", "d", FOR_TYPE)),
    ("jobs", "SendMessage", {"MessageBody": "m", **text("")}, INVALID,
     "Message (user) attribute 'a' must contain a non-empty value of type 'String'."),
    ("jobs", "SendMessage", {"MessageBody": "m" * 1_048_577}, INVALID,
     "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."),
    ("jobs", "SendMessageBatch", {"Entries": LARGE}, ours("BatchRequestTooLong"),
     "Batch requests cannot be longer than 1048576 bytes. You have sent 1048578 bytes."),
    ("jobs", "SendMessageBatch", {"Entries": []}, ours("EmptyBatchRequest"),
     EMPTY.format("SendMessageBatchRequestEntry")),
    ("jobs", "DeleteMessageBatch", {"Entries": []}, ours("EmptyBatchRequest"),
     EMPTY.format("DeleteMessageBatchRequestEntry")),
    ("jobs", "ChangeMessageVisibilityBatch", {"Entries": []}, ours("EmptyBatchRequest"),
     EMPTY.format("ChangeMessageVisibilityBatchRequestEntry")),
    ("jobs", "SendMessageBatch", {"Entries": REPEATED}, ours("BatchEntryIdsNotDistinct"),
     "Id 1 repeated."),
    ("jobs", "SendMessageBatch", {"Entries": REPEATED * 10}, ours("TooManyEntriesInBatchRequest"),
     "Maximum number of entries per request are 10. You have sent 20."),
    ("jobs", "DeleteMessageBatch", {"Entries": [{"Id": "a:b", "ReceiptHandle": "r"}]},
     ours("InvalidBatchEntryId"), BAD_ID),
    ("jobs", "DeleteMessage", {"ReceiptHandle": "garbage"},
     ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"),
     'The input receipt handle "garbage" is not a valid receipt handle.'),
    ("jobs", "SetQueueAttributes", {"Attributes": {"FifoQueue": "true"}}, ATTRIBUTE_NAME,
     "Unknown Attribute FifoQueue."),
    ("jobs", "SetQueueAttributes", {"Attributes": {"Colour": "red"}}, ATTRIBUTE_NAME,
     "Unknown Attribute Colour."),
    ("jobs", "GetQueueAttributes", {"AttributeNames": ["Foobar"]}, ATTRIBUTE_NAME,
     "Unknown Attribute Foobar."),
    ("jobs", "CreateQueue", {"QueueName": "new", "Attributes": {"FifoQueue": "false"}},
     ATTRIBUTE_NAME, "Unknown Attribute FifoQueue."),
    ("jobs", "CreateQueue",
     {"QueueName": "new", "Attributes": {"ContentBasedDeduplication": "false"}}, ATTRIBUTE_NAME,
     "Unknown Attribute ContentBasedDeduplication."),
    ("jobs", "CreateQueue", {"QueueName": "new", "Attributes": {"DeduplicationScope": "queue"}},
     ATTRIBUTE_NAME, "You can specify the DeduplicationScope only when FifoQueue is set to true."),
    ("jobs", "CreateQueue", {"QueueName": "new.fifo"}, INVALID, NAME),
    ("jobs", "CreateQueue", {"QueueName": "new", "Attributes": {"FifoQueue": "true"}}, INVALID,
     FIFO_NAME),
    ("jobs", "CreateQueue", {"QueueName": "jobs", "Attributes": {"DelaySeconds": "5"}},
     ("QueueNameExists", "QueueAlreadyExists"),
     "A queue already exists with the same name and a different value for attribute DelaySeconds"),
    ("jobs.fifo", "SendMessage", {**ENTRY, "DelaySeconds": 2}, INVALID,
     of_value("DelaySeconds", 2, FOR_TYPE)),
    ("jobs.fifo", "SendMessage", {"MessageBody": "m"}, MISSING,
     "The request must contain the parameter MessageGroupId."),
    ("jobs.fifo", "SendMessage", {"MessageBody": "m", "MessageGroupId": "g"}, INVALID, NO_DEDUP_ID),
    ("jobs.fifo", "SendMessageBatch",
     {"Entries": [ENTRY, {"Id": "2", "MessageBody": "m", "MessageGroupId": "g"}]}, INVALID,
     NO_DEDUP_ID),
    ("jobs.fifo", "SendMessageBatch",
     {"Entries": [ENTRY, {"Id": "2", "MessageBody": "m", "MessageDeduplicationId": "d"}]}, INVALID,
     "The request must contain the parameter MessageGroupId."),
    ("jobs.fifo", "SetQueueAttributes", {"Attributes": {"FifoQueue": "False"}},
     ("InvalidAttributeValue", "InvalidAttributeValue"),
     "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."),
]  # fmt: skip
SINGULAR = {
    "Entries": "{}RequestEntry",
    "AttributeNames": "AttributeName",
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
}


def form_of(action: str, values: dict[str, Any]) -> dict[str, str]:
    """Encodes a request as a form like SDKs: an empty list has a name and no value."""
    form: dict[str, str] = {}

    def write(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                write(f"{name}.{SINGULAR.get(key, key)}", inner)
        elif isinstance(value, list):
            for number, item in enumerate(value, 1):
                write(f"{name}.{number}", item)
            if not value:
                form[name] = ""
        else:
            form[name] = str(value)

    for key, value in values.items():
        name = SINGULAR.get(key, key).format(action)
        if key in ("Attributes", "MessageAttributes"):
            value = [{"Name": one, "Value": inner} for one, inner in value.items()]
        write(name, value)
    return {name.replace(".", "__"): value for name, value in form.items()}


@pytest.mark.parametrize(
    ("queue", "action", "values", "names", "message"),
    REFUSED,
    ids=[f"{at}-{row[1]}" for at, row in enumerate(REFUSED)],
)
@run_with(with_sdk)
async def test_error_has_amazons_names_and_text(
    sdk: Sdk,
    *,
    queue: str,
    action: str,
    values: dict[str, Any],
    names: tuple[str, str],
    message: str,
) -> None:
    await sdk.create("jobs")
    await sdk.create("jobs.fifo")
    url = f"http://broker:8080/000000000000/{queue}"
    if action != "CreateQueue":
        values.setdefault("QueueUrl", url)
    status, headers, body = await sdk.post(
        json.dumps(values).encode(), {"x-amz-target": f"AmazonSQS.{action}"}
    )
    answer = json.loads(body)
    shape, code = names
    assert status == 400
    assert answer["__type"].partition("#")[2] == shape
    assert headers["x-amzn-query-error"] == f"{code};Sender"
    assert answer["message"] == message
    failed = await failure(sdk.form(action, VERSION, **form_of(action, values)))
    assert (failed.code, failed.message) == (code, message)


@run_with(with_sdk)
async def test_missing_queue_has_different_texts_per_protocol(sdk: Sdk) -> None:
    failed = await failure(sdk("GetQueueUrl", QueueName="nothing"))
    assert (failed.name, failed.code) == (
        "QueueDoesNotExist",
        "AWS.SimpleQueueService.NonExistentQueue",
    )
    assert failed.message == "The specified queue does not exist."
    failed = await failure(sdk.form("GetQueueUrl", VERSION, QueueName="nothing"))
    assert failed.code == "AWS.SimpleQueueService.NonExistentQueue"
    assert failed.message == "The specified queue does not exist for this wsdl version."


@run_with(with_sdk)
async def test_booleans_are_accepted_in_any_case(sdk: Sdk) -> None:
    url = await sdk.create("a.fifo", FifoQueue="True", ContentBasedDeduplication="TRUE")
    assert await sdk.create("a.fifo", FifoQueue="true", ContentBasedDeduplication="true") == url
    shown = await sdk.attributes(url)
    assert (shown["FifoQueue"], shown["ContentBasedDeduplication"]) == ("true", "true")
    off = {"ContentBasedDeduplication": "False", "FifoQueue": "TRUE"}
    await sdk("SetQueueAttributes", QueueUrl=url, Attributes=off)
    assert (await sdk.attributes(url))["ContentBasedDeduplication"] == "false"
    failed = await failure(
        sdk("SetQueueAttributes", QueueUrl=url, Attributes={"ContentBasedDeduplication": "no"})
    )
    assert failed.name == "InvalidAttributeValue"


WANTED: list[tuple[list[str], list[str]]] = [
    ([], []),
    (["All"], ["General", "Helpful", "Help.Me"]),
    (["*"], ["General", "Helpful", "Help.Me"]),
    ([".*"], ["General", "Helpful", "Help.Me"]),
    (["Foo", "Help"], []),
    (["Helpful", "General"], ["General", "Helpful"]),
    (["Foo", "Helpful"], ["Helpful"]),
    (["Help.*"], ["Helpful", "Help.Me"]),
    (["AWS."], []),
    (["..foo"], []),
]


@pytest.mark.parametrize(("wanted", "shown"), WANTED, ids=[str(row[0]) for row in WANTED])
@pytest.mark.parametrize("is_form", [False, True], ids=["json", "query"])
@run_with(with_sdk)
async def test_attributes_are_selected_by_name_and_prefix(
    sdk: Sdk, *, wanted: list[str], shown: list[str], is_form: bool
) -> None:
    url = await sdk.create()
    one = {"DataType": "String", "StringValue": "v"}
    names = ("Help.Me", "Helpful", "General")
    await sdk.send(url, "m", MessageAttributes=dict.fromkeys(names, one))
    if is_form:
        form = {f"MessageAttributeName__{n}": name for n, name in enumerate(wanted, 1)}
        form = form or {"MessageAttributeName": ""}
        root = await sdk.form("ReceiveMessage", VERSION, QueueUrl=url, **form)
        found = [name.text for name in root.iter("Name")]
    else:
        answer = await sdk("ReceiveMessage", QueueUrl=url, MessageAttributeNames=wanted)
        (message,) = answer["Messages"]
        assert ("MD5OfMessageAttributes" in message) == bool(shown)
        found = list(message.get("MessageAttributes", {}))
    assert sorted(str(name) for name in found) == sorted(shown)


@run_with(with_sdk)
async def test_system_attributes_can_be_requested_by_two_parameters(sdk: Sdk) -> None:
    url = await sdk.create()
    await sdk.send(url, "m")

    async def shown(**names: list[str]) -> list[str]:
        answer = await sdk("ReceiveMessage", QueueUrl=url, VisibilityTimeout=0, **names)
        return sorted(answer["Messages"][0].get("Attributes", {}))

    every = [
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "SenderId",
        "SentTimestamp",
    ]
    assert await shown(MessageSystemAttributeNames=["All"]) == every
    assert await shown(AttributeNames=["All"]) == every
    assert await shown(AttributeNames=["SenderId", "SequenceNumber"]) == ["SenderId"]
    both = await shown(AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"])
    assert both == ["SenderId", "SentTimestamp"]
    assert await shown() == []


@run_with(with_sdk)
async def test_message_inherits_the_trace_of_the_request(sdk: Sdk) -> None:
    url = await sdk.create()
    header, own = "Root=1-3152b799-8954dae64eda91bc9a23a7e8", "Root=2"
    sdk.headers["x-amzn-trace-id"] = header
    await sdk.send(url, "a")
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": own}}
    await sdk.send(url, "b", MessageSystemAttributes=trace)
    await sdk("SendMessageBatch", QueueUrl=url, Entries=[{"Id": "1", "MessageBody": "c"}])
    for unlike in ("x" * 257, "Root=\x01", "Root=\xe9"):
        sdk.headers["x-amzn-trace-id"] = unlike
        await sdk.send(url, "d")
    del sdk.headers["x-amzn-trace-id"]
    got = {one["Body"]: one["Attributes"].get("AWSTraceHeader") for one in await sdk.receive(url)}
    assert got == {"a": header, "b": own, "c": header, "d": None}


@run_with(with_sdk)
async def test_too_large_message_of_a_batch_fails_alone(sdk: Sdk) -> None:
    url = await sdk.create(MaximumMessageSize="1024")
    rows = [{"Id": str(size), "MessageBody": "a" * size} for size in (1024, 1025)]
    answer = await sdk("SendMessageBatch", QueueUrl=url, Entries=rows)
    assert [row["Id"] for row in answer["Successful"]] == ["1024"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"]) == ("1025", "InvalidParameterValue")
