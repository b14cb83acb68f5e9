"""Reading records: fetches, group members, record counts."""
