"""Jobs on Spark that are ready to use: archive, replay, audit, skew, triage, tables, state.

Each is a function that takes a session and says what it did; `penstock job` calls them. See
docs/how-to/spark-jobs.md.
"""
