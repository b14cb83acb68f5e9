"""Workloads of simulated clients, one module per kind; reusable for any cluster."""
