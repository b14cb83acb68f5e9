"""`penstock job` and `penstock pipeline`, which run on Spark."""
