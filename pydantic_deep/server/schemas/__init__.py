"""The bodies of requests and responses of our own routes, and the functions that build them from records.

Class names are the titles of schemas in the OpenAPI document.
Not here: the request formats of other APIs (`compat`, `ui`).
"""
