"""The metadata store as this node sees it: image, watcher, membership, topics, recovery."""
