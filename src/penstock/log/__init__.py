"""One partition as files: append, read, recover, retain, compact. See `log.log.Log`."""
