"""Messages: as JSON, with media stored separately, and the notices and metadata that capabilities add to them.

For this package only. Requests are in `_requests`, and the public protocols in `extensions`.
"""
