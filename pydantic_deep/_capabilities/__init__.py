"""The base class of our capabilities. For this package only."""
