"""`penstock group`: list, describe, seek, alter, advise."""
