"""Order processing end to end: validate, enrich, aggregate, load, dead letters, redrive."""
