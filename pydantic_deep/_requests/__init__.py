"""Requests to a model: canonical form, models that observe or answer, last answers, prices. For this package only."""
