"""Any input of the SQS endpoint is parsed or refused; attributes round-trip."""

import string
from collections.abc import Callable
from urllib.parse import urlencode
from xml.etree import ElementTree

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.sns.filter_policies import (
    check_policy,
    matches_attributes,
    matches_body,
    read_policy,
)
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.message_attributes import (
    AttributeValue,
    attributes_of,
    digest_attributes,
    headers_of,
    is_text,
)
from penstock.gateway.sqs.protocols import SQS_NAMESPACE, read_form, write_result
from penstock.gateway.sqs.requests import SendMessage, SendMessageBatch, read_request
from penstock.gateway.sqs.sigv4 import SignedRequest, claim_of, verify

TEXT = st.text(min_size=1).filter(is_text)
NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20).filter(
    lambda name: not name.startswith("penstock-") and name != "message_id"
)
VALUES = st.one_of(
    st.builds(AttributeValue, st.just("String"), TEXT),
    st.builds(AttributeValue, st.just("Number.x"), st.integers().map(str)),
    st.builds(
        AttributeValue,
        st.sampled_from(["Binary", "Binary.gif"]),
        st.none(),
        st.binary(min_size=1),
    ),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(st.dictionaries(NAMES, VALUES, max_size=10))
def test_attributes_round_trip(attributes: dict[str, AttributeValue]) -> None:
    found = attributes_of(headers_of(attributes), ["All"])
    assert found == attributes
    assert digest_attributes(found) == digest_attributes(attributes)


def refusal(call: Callable[[], object]) -> Fault | None:
    """The refusal of a call, if there is one: anything but a Fault is a bug."""
    try:
        call()
    except Fault as fault:
        return fault
    return None


@given(st.lists(st.tuples(st.text(string.ascii_letters + ".0123456789"), st.text())))
def test_any_form_is_parsed_or_refused(pairs: list[tuple[str, str]]) -> None:
    refused = refusal(lambda: read_form(urlencode(pairs, errors="replace").encode()))
    assert refused is None or refused.name == "MalformedQueryString"


@given(st.binary())
def test_any_bytes_are_a_form_or_refused(body: bytes) -> None:
    refused = refusal(lambda: read_form(body))
    assert refused is None or refused.name == "MalformedQueryString"


@given(st.dictionaries(st.sampled_from(["QueueUrl", "MessageBody", "Entries", "Id", "x"]), JSON))
def test_any_values_are_a_request_or_refused(values: dict[str, object]) -> None:
    for kind in (SendMessage, SendMessageBatch):
        refused = refusal(lambda kind=kind: read_request(kind, values))  # type: ignore[misc]
        assert refused is None or refused.status == 400


@given(TEXT)
def test_any_text_round_trips_through_xml(text: str) -> None:
    body = write_result("A", {"Messages": [{"Body": text}]}, "id", namespace=SQS_NAMESPACE)
    root = ElementTree.fromstring(body)
    found = [element.text for element in root.iter() if element.tag.endswith("}Body")]
    assert found == [text]


@given(JSON, JSON, st.dictionaries(NAMES, VALUES, max_size=3))
def test_any_filter_policy_is_parsed_or_refused(
    policy: object, body: object, attributes: dict[str, AttributeValue]
) -> None:
    text = msgspec.json.encode(policy).decode()
    refused = refusal(lambda: check_policy(text, is_of_body=True))
    if refused is not None:
        assert refused.name == "InvalidParameter"
        return
    assert matches_attributes(read_policy(text), attributes) in (True, False)
    assert matches_body(read_policy(text), msgspec.json.encode(body).decode()) in (True, False)


@given(st.text(), st.text(), st.binary(), st.binary())
def test_invalid_authorization_is_refused(
    authorization: str, date: str, path: bytes, query: bytes
) -> None:
    headers = [("host", "h"), ("authorization", authorization), ("x-amz-date", date)]
    request = SignedRequest("POST", path, query, headers, b"")
    refused = refusal(lambda: verify(request, claim_of(request), {"KEY": "secret"}, 0))
    assert refused is not None
    assert refused.status == 403
