"""A Kafka client on our own codecs: connections, routing, admin, producer, consumer.

The base of `penstock.Client`, of the Spark source and of replication between nodes. It speaks to
any Kafka broker, not only to ours. Time comes from the loop and from a WallClock, jitter from a
Random: nothing here reads the real clock, so the simulator can drive all of it.
"""
