"""Access control: authentication by API key or by the login of a host application, scopes, and ownership.

Another owner's resources answer 404, as if they did not exist.

Defined elsewhere: the storage of keys (`_api_keys`), and rate limits (`_rate_limits`).
"""
