"""Whole programs that use Penstock, each with the data it needs; run by the tests."""
