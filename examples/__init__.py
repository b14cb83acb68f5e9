"""Complete programs that use Penstock, with generators of their data; run by the tests."""
