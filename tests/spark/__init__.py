"""Penstock as a source and a sink of Spark, on one shared local session."""
