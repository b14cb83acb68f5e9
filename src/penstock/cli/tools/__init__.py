"""`penstock worker`, `outbox`, `generate`, `cheat`, `completion` and `wire`."""
