"""HTTP layer of the gateways: connections, authentication, limits, errors, auditing, metrics.

It translates and implements no semantics. Importing the package is cheap;
`penstock.gateway.server` imports Starlette and uvicorn.
"""
