"""Request and response bodies of our own routes, and the functions that build them from records.

Class names are the titles of schemas in the OpenAPI document.

Defined elsewhere: the request formats of other APIs (`compat`, `ui`).
"""
