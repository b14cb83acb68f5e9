"""What applications use: `penstock.Client`, its synchronous twin, the worker, what goes with it.

Built on `penstock.client` alone, so all of it works against any Kafka broker as far as that goes.
Here is where the real clock, the real randomness and threads are chosen, unless the caller brings
others.
"""
