"""`penstock user`, `acl`, `quota`, `audit` and `profile`."""
