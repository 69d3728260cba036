"""Log messages that several packages write. For this package only."""
