"""The Kafka endpoint: `server` holds the sockets, `api` one handler for each Kafka API."""
