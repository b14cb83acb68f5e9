"""Ready-to-use Spark jobs: archive, replay, audit, skew, triage, tables, event sourcing.

Each is a function that takes a session and returns its result; `penstock job` calls them. See
docs/how-to/spark-jobs.md.
"""
