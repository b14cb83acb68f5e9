"""Application API: `penstock.Client`, `SyncClient`, `Worker`, dedup, rate limits, outbox.

Built on `penstock.client` alone, so it works against any Kafka broker, within that broker's
features. This package selects the real clock, randomness and threads unless the caller passes
others.
"""
