"""Activity tracking: groups clicks of users to visits with their first pages."""
