"""Data that capabilities store in messages and share: metadata of summaries, deferred calls and tool results, notices.

For this package only. Not here: requests (`_requests`), and the protocols of `extensions`.
"""
