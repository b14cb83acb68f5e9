"""`penstock cluster`, `doctor`, `plan`, `debug` and `encryption`."""
