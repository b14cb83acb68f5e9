"""Work queues as state machines without I/O: delivery, leases, retries, dead-lettering."""
