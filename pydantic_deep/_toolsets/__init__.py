"""Base classes and helpers of toolsets that several capabilities share. For this package only."""
