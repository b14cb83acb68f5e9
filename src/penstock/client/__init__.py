"""Kafka client on Penstock's codecs: connections, routing, admin, producer, consumer.

The base of `penstock.Client`, of the Spark source and of replication between nodes. It works with
any Kafka broker. Time comes from the loop and a WallClock, jitter from a Random: no code here reads
the real clock, so the simulator can drive all of it.
"""
