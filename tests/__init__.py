"""Tests of Penstock, from single functions to real clients and killed processes."""
