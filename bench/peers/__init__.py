"""Other brokers on loopback, so that both sides are measured in the same run."""
