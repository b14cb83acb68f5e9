"""`penstock demo`: a shop that takes orders, with data for every page of the console."""
