"""Writing to Penstock from Spark: exactly once, with transactions that the driver commits."""
