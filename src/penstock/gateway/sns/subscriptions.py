"""Subscriptions of queues to SNS topics: subscribe, list, change, unsubscribe.

Only queues can subscribe (protocol `sqs`), each once per topic. Subscriptions are part of their
topic's record; see `topics`. Filter policies are validated when they are set. Lists leave out
queues that the caller may not describe.
"""

from collections.abc import Mapping
from uuid import UUID

from msgspec.structs import replace

from penstock.broker.api.route_row import Operation
from penstock.gateway.core.cluster_types import FanoutRecord, SubscriptionRecord
from penstock.gateway.core.permissions import require_topic
from penstock.gateway.sns import requests
from penstock.gateway.sns.filter_policies import check_policy
from penstock.gateway.sns.topics import PAGE, alter, find
from penstock.gateway.sqs.call import Answer, AwsCall
from penstock.gateway.sqs.errors import Fault
from penstock.gateway.sqs.queue_names import ACCOUNT, is_fifo, queue_of_arn
from penstock.gateway.sqs.requests import page

SUBSCRIPTIONS_MAX = 200
RAW, FILTER, SCOPE = "RawMessageDelivery", "FilterPolicy", "FilterPolicyScope"
SCOPES = OF_BODY, OF_ATTRIBUTES = "MessageBody", "MessageAttributes"


async def subscribe(call: AwsCall, request: requests.Subscribe) -> Answer:
    name, _ = find(call, request.topic_arn, Operation.READ)
    if request.protocol != "sqs":
        raise Fault("InvalidParameter", "Invalid parameter: Protocol Reason: only sqs is supported")
    queue = queue_of_arn(request.endpoint, "Endpoint")
    call.queue_named(queue, Operation.WRITE)
    if is_fifo(queue) and not is_fifo(name):
        raise Fault(
            "InvalidParameter",
            "Invalid parameter: Invalid parameter: Endpoint Reason: FIFO SQS Queues can not be "
            "subscribed to standard SNS topics",
        )
    try:
        _check(request.attributes)
    except Fault as fault:
        why = fault.message.removeprefix("Invalid parameter: ")
        raise Fault(fault.name, f"Invalid parameter: Attributes Reason: {why}") from None
    wanted = SubscriptionRecord(
        id=str(UUID(bytes=call.node.random.random_bytes(16), version=4)),
        queue=queue,
        attributes=request.attributes,
    )
    found: list[str] = []

    def edit(record: FanoutRecord) -> FanoutRecord:
        for old in record.subscriptions:
            if old.queue == queue:
                if old.attributes != request.attributes and request.attributes:
                    raise Fault(
                        "InvalidParameter",
                        "Invalid parameter: Attributes Reason: Subscription already exists with "
                        "different attributes",
                    )
                found.append(old.id)
                return record
        if len(record.subscriptions) >= SUBSCRIPTIONS_MAX:
            raise Fault(
                "SubscriptionLimitExceeded",
                f"The topic has {SUBSCRIPTIONS_MAX} subscriptions, which is the maximum.",
            )
        found.append(wanted.id)
        return replace(record, subscriptions=(*record.subscriptions, wanted))

    await alter(call, name, edit)
    return {"SubscriptionArn": requests.subscription_arn(call.region, name, found[-1])}


async def unsubscribe(call: AwsCall, request: requests.Unsubscribe) -> Answer:
    name, subscription_id = requests.subscription_of_arn(request.subscription_arn)
    require_topic(call.node, call.principal, Operation.READ, name)
    if name not in call.gateway.fanouts.all:
        return {}
    await alter(
        call,
        name,
        lambda record: replace(
            record,
            subscriptions=tuple(s for s in record.subscriptions if s.id != subscription_id),
        ),
    )
    return {}


async def get_subscription_attributes(
    call: AwsCall, request: requests.GetSubscriptionAttributes
) -> Answer:
    name, subscription = _subscription(call, request.subscription_arn)
    shown = {
        **_show(call, name, subscription),
        "ConfirmationWasAuthenticated": "true",
        "PendingConfirmation": "false",
        RAW: "false",
    }
    return {"Attributes": shown | _shown(subscription.attributes)}


async def set_subscription_attributes(
    call: AwsCall, request: requests.SetSubscriptionAttributes
) -> Answer:
    name, subscription = _subscription(call, request.subscription_arn)
    attribute, value = request.attribute_name, request.attribute_value
    _check_name(attribute)

    def changed(old: SubscriptionRecord) -> SubscriptionRecord:
        attributes = {**old.attributes, attribute: value}
        if attribute == FILTER and not value:
            del attributes[FILTER]
        # Which policies are valid depends on the scope.
        _check(attributes if attribute in (FILTER, SCOPE) else {attribute: value})
        return replace(old, attributes=attributes)

    def edit(record: FanoutRecord) -> FanoutRecord:
        return replace(
            record,
            subscriptions=tuple(
                changed(old) if old.id == subscription.id else old for old in record.subscriptions
            ),
        )

    await alter(call, name, edit)
    return {}


async def list_subscriptions(call: AwsCall, request: requests.ListSubscriptions) -> Answer:
    rows = {
        f"{name}:{one.id}": _show(call, name, one)
        for name, record in call.gateway.fanouts.all.items()
        if call.may_see(name)
        for one in record.subscriptions
        if call.may_see(one.queue)
    }
    return _listed(rows, request.next_token)


async def list_subscriptions_by_topic(
    call: AwsCall, request: requests.ListSubscriptionsByTopic
) -> Answer:
    name, record = find(call, request.topic_arn, Operation.DESCRIBE)
    rows = {
        one.id: _show(call, name, one) for one in record.subscriptions if call.may_see(one.queue)
    }
    return _listed(rows, request.next_token)


def _listed(rows: Mapping[str, Mapping[str, str]], token: str | None) -> Answer:
    shown, following = page(sorted(rows), PAGE, token)
    answer: Answer = {"Subscriptions": [rows[key] for key in shown]}
    return answer | ({"NextToken": following} if following else {})


def _show(call: AwsCall, topic: str, subscription: SubscriptionRecord) -> dict[str, str]:
    return {
        "SubscriptionArn": requests.subscription_arn(call.region, topic, subscription.id),
        "Owner": ACCOUNT,
        "Protocol": "sqs",
        "Endpoint": call.arn(subscription.queue),
        "TopicArn": requests.topic_arn(call.region, topic),
    }


def _subscription(call: AwsCall, arn: str) -> tuple[str, SubscriptionRecord]:
    name, subscription_id = requests.subscription_of_arn(arn)
    require_topic(call.node, call.principal, Operation.READ, name)
    record = call.gateway.fanouts.all.get(name, FanoutRecord())
    for subscription in record.subscriptions:
        if subscription.id == subscription_id:
            return name, subscription
    raise Fault("NotFound", "Subscription does not exist")


def _shown(attributes: Mapping[str, str]) -> dict[str, str]:
    """Formats attributes as SNS does: no scope without a policy, a default one with a policy."""
    shown = {name: value for name, value in attributes.items() if value and name != SCOPE}
    if FILTER in shown:
        shown[SCOPE] = attributes.get(SCOPE, OF_ATTRIBUTES)
    return shown


def _check(attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        _check_name(name)
        if name == SCOPE and value not in SCOPES:
            raise Fault(
                "InvalidParameter",
                f"Invalid parameter: {SCOPE}: Invalid value [{value[:100]}]. Please use either "
                "MessageBody or MessageAttributes",
            )
        if name == RAW and value.lower() not in ("true", "false"):
            raise Fault(
                "InvalidParameter",
                f"Invalid parameter: {RAW}: Invalid value [{value[:100]}]. Must be true or false.",
            )
    if attributes.get(FILTER):
        check_policy(attributes[FILTER], is_of_body=attributes.get(SCOPE) == OF_BODY)


def _check_name(name: str) -> None:
    if name not in (RAW, FILTER, SCOPE):
        raise Fault("InvalidParameter", f"Invalid parameter: AttributeName: {name[:100]}")
