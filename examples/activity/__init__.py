"""Activity tracking: clicks of users made visits, and the pages that visits begin with."""
