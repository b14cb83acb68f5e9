"""What every door inside the node does: publish, receive, settle. No protocol of its own."""
