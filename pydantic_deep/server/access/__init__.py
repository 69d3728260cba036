"""Access control: authentication by API key, scopes, and ownership.

Another owner's resources answer 404, as if they did not exist.
Not here: how keys are stored (`_api_keys`) and how often they may be used (`_rate_limits`).
"""
