"""Messages of Penstock, not Kafka: for its tools and between its nodes (API keys from 30000)."""
