"""`penstock job` and `penstock pipeline`."""
