"""Share consumer (KIP-932): sessions, leases and acknowledgements."""
