"""Reading as a member of a share group (KIP-932): sessions, leases, acknowledgements."""
