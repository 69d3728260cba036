"""Messages: as JSON, with media beside them, and the notices and metadata that capabilities add to them.

For this package only. Not here: requests (`_requests`), and the protocols of `extensions`.
"""
