"""Every endpoint besides Kafka's: REST, SQS, SNS, the schema registry's and the console."""
