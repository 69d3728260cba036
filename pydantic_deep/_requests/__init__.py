"""Requests to a model: their canonical form, models that observe or answer them, and prices. For this package only."""
