"""The two protocols of AWS SDKs: parsing of requests and formatting of responses.

`JsonProtocol` (AWS JSON 1.0): the action is in `X-Amz-Target`, errors have a `__type`, and the
older code is in `x-amzn-query-error`. `QueryProtocol`: a form with `Action`, answered with XML; the
form's `Version` distinguishes SNS from SQS.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
from starlette.responses import Response

from penstock.gateway.http.request_io import utf8
from penstock.gateway.sns.actions import SNS_ACTIONS
from penstock.gateway.sqs import query_xml
from penstock.gateway.sqs.actions import SQS_ACTIONS
from penstock.gateway.sqs.call import Action, Answer
from penstock.gateway.sqs.errors import QUERY_MESSAGES, UNMODELLED, Fault
from penstock.gateway.sqs.query_forms import SNS_VERSION, read_form

SQS_TARGET = "AmazonSQS."
ERROR_NAMESPACE = "com.amazonaws.sqs#"
COMMON_NAMESPACE = "com.amazon.coral.service#"
"""Namespace of errors outside of SQS's own model."""
JSON_TYPE = "application/x-amz-json-1.0"
XML_TYPE = "text/xml"
REQUEST_ID = "x-amzn-requestid"
SNS_NAMES = {
    "AccessDenied": "AuthorizationError",
    "InvalidAttributeValue": "InvalidParameter",
    "InvalidMessageContents": "InvalidParameter",
    "InvalidParameterValue": "InvalidParameter",
    "MissingParameter": "InvalidParameter",
    "QueueDoesNotExist": "NotFound",
}
"""SNS's names of errors that SQS has, too."""


@dataclass(frozen=True, slots=True)
class ParsedAction:
    """Parsed request."""

    name: str
    action: Action
    values: dict[str, object]


class AwsProtocol(Protocol):
    """Protocol of one request."""

    def read(self, body: bytes) -> ParsedAction:
        """Parses a request; raises Fault if it is malformed or its action unknown."""
        ...

    def result(self, parsed: ParsedAction, answer: Answer) -> Response: ...

    def error(self, fault: Fault) -> Response: ...


def find(actions: Mapping[str, Action], name: str) -> Action:
    action = actions.get(name)
    if action is None:
        raise Fault("InvalidAction", f"The action {name[:100]} is not valid for this endpoint.")
    return action


class JsonProtocol:
    def __init__(self, target: str, request_id: str) -> None:
        self._target = target
        self._request_id = request_id

    def read(self, body: bytes) -> ParsedAction:
        name = self._target.removeprefix(SQS_TARGET)
        action = find(SQS_ACTIONS if name != self._target else {}, name)
        try:
            values = msgspec.json.decode(utf8(body or b"{}"), type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Fault(
                "SerializationException", f"The body is not a valid JSON object: {error}"
            ) from error
        if "tags" in values:
            # Only CreateQueue has this field in lower case.
            values["Tags"] = values.pop("tags")
        return ParsedAction(name, action, values)

    def result(self, parsed: ParsedAction, answer: Answer) -> Response:
        return self._respond(msgspec.json.encode(answer), 200, {})

    def error(self, fault: Fault) -> Response:
        common = UNMODELLED.get(fault.name)
        kind_of = ERROR_NAMESPACE + fault.name if common is None else COMMON_NAMESPACE + common
        body = {"__type": kind_of, "message": fault.message}
        kind = "Sender" if fault.is_sender else "Receiver"
        code = {"x-amzn-query-error": f"{fault.old_code};{kind}"}
        return self._respond(msgspec.json.encode(body), fault.status, code | fault.headers)

    def _respond(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        all_headers = {"content-type": JSON_TYPE, REQUEST_ID: self._request_id, **headers}
        return Response(body, status, headers=all_headers)


class QueryProtocol:
    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._namespace = query_xml.SQS_NAMESPACE

    def read(self, body: bytes) -> ParsedAction:
        values = read_form(body)
        name = values.pop("Action", None)
        if not isinstance(name, str):
            raise Fault("MissingAction", "The request must contain the parameter Action.")
        if values.get("Version") == SNS_VERSION:
            self._namespace = query_xml.SNS_NAMESPACE
            return ParsedAction(name, find(SNS_ACTIONS, name), values)
        return ParsedAction(name, find(SQS_ACTIONS, name), values)

    def result(self, parsed: ParsedAction, answer: Answer) -> Response:
        plain = msgspec.to_builtins(answer, builtin_types=(bytes,))
        body = query_xml.write_result(
            parsed.name, plain, self._request_id, namespace=self._namespace
        )
        return self._respond(body, 200, {})

    def error(self, fault: Fault) -> Response:
        is_sns = self._namespace == query_xml.SNS_NAMESPACE
        body = query_xml.write_error(
            SNS_NAMES.get(fault.name, fault.name) if is_sns else fault.old_code,
            fault.message if is_sns else QUERY_MESSAGES.get(fault.name, fault.message),
            self._request_id,
            is_sender=fault.is_sender,
            namespace=self._namespace,
        )
        return self._respond(body, fault.status, fault.headers)

    def _respond(self, body: bytes, status: int, headers: dict[str, str]) -> Response:
        all_headers = {"content-type": XML_TYPE, REQUEST_ID: self._request_id, **headers}
        return Response(body, status, headers=all_headers)
