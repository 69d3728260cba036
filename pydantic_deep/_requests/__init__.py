"""Requests to a model: their canonical form, wrappers that observe or answer them, prices. For this package only."""
