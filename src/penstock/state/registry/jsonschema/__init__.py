"""JSON schemas, drafts 4 to 7 and 2020-12: read, and compared by what documents they accept."""
