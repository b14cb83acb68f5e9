"""JSON schemas, drafts 4 to 7 and 2020-12: parsed, and compared by the documents they accept."""
