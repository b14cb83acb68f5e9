"""SQS endpoint: Amazon's queue API over topics and share groups, for boto3 and other SDKs."""
