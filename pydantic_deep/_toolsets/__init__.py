"""Base classes and helpers for toolsets of several capabilities. For this package only."""
