"""`penstock up` and `penstock node`, and the etcd that a local cluster starts."""
