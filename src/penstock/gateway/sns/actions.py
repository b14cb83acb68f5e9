"""Table of the SNS actions with their request types and handlers."""

from penstock.gateway.sns import publish, requests, subscriptions, topics
from penstock.gateway.sqs.call import Action

SNS_ACTIONS = {
    "CreateTopic": Action(requests.CreateTopic, topics.create_topic),
    "DeleteTopic": Action(requests.DeleteTopic, topics.delete_topic),
    "GetSubscriptionAttributes": Action(
        requests.GetSubscriptionAttributes, subscriptions.get_subscription_attributes
    ),
    "GetTopicAttributes": Action(requests.GetTopicAttributes, topics.get_topic_attributes),
    "ListSubscriptions": Action(requests.ListSubscriptions, subscriptions.list_subscriptions),
    "ListSubscriptionsByTopic": Action(
        requests.ListSubscriptionsByTopic, subscriptions.list_subscriptions_by_topic
    ),
    "ListTagsForResource": Action(requests.ListTagsForResource, topics.list_tags_for_resource),
    "ListTopics": Action(requests.ListTopics, topics.list_topics),
    "Publish": Action(requests.Publish, publish.publish),
    "PublishBatch": Action(requests.PublishBatch, publish.publish_batch),
    "SetSubscriptionAttributes": Action(
        requests.SetSubscriptionAttributes, subscriptions.set_subscription_attributes
    ),
    "SetTopicAttributes": Action(requests.SetTopicAttributes, topics.set_topic_attributes),
    "Subscribe": Action(requests.Subscribe, subscriptions.subscribe),
    "TagResource": Action(requests.TagResource, topics.tag_resource),
    "Unsubscribe": Action(requests.Unsubscribe, subscriptions.unsubscribe),
    "UntagResource": Action(requests.UntagResource, topics.untag_resource),
}
