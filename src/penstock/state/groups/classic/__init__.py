"""Classic group protocol: members join, the leader assigns, all members sync."""
