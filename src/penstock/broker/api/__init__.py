"""One function per Kafka API, one file per family; `routes.py` is the table of them all."""
