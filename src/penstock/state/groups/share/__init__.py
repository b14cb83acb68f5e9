"""Share groups of KIP-932: members read the same partitions together."""
