"""Access control lists, users and quotas in the metadata store, and the authorizer."""
