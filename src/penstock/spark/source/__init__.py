"""Reading from Penstock in Spark: batch and streaming sources, and queues as streams."""
