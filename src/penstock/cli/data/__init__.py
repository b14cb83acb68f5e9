"""`penstock topic`, `config`, `produce`, `consume`, `replay`, `txn` and `bench`."""
