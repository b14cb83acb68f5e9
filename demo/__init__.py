"""`make demo`: a shop that takes orders, with everything in it that the console can show."""
