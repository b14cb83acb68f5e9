"""The HTTP door: health, readiness, metrics. It translates and never implements semantics.

Importing the package costs nothing; `penstock.gateway.server` brings in Starlette and uvicorn.
"""
