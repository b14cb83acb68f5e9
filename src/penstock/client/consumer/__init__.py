"""Consumer: fetches, membership in groups, record counts."""
