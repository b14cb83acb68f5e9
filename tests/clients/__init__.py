"""Real Kafka clients against a real broker process, with no settings made for Penstock."""
