"""The base class of our capabilities, and the time of a replay. For this package only."""
