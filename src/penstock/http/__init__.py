"""The HTTP door: health, readiness, metrics. It translates and never implements semantics.

Importing the package costs nothing; `penstock.http.server` brings in Starlette and uvicorn.
"""
