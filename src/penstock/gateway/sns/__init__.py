"""The SNS door: topics that pass what is published on to the SQS queues that subscribe."""
