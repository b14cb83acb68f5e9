"""Sink: exactly-once writes from Spark, in transactions that the driver commits."""
