"""SNS endpoint: topics that fan out published messages to subscribed SQS queues."""
