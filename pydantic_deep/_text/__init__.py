"""Texts: encodings and media types, escapes, line diffs, command lines. Pure; for this package only."""
