"""APIs of share groups (KIP-932), and Penstock's own APIs for queues."""
