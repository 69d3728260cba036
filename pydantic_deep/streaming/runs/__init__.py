"""Events of our runs: from a live run, and from its messages afterwards.

Not here: the events themselves (`_events`), their encoding as lines (`_lines`), and streams of providers (`providers`).
"""
