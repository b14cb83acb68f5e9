"""`penstock queue` and `penstock dlq`."""
