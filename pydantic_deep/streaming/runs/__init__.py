"""Events of our runs, from a live run or from stored messages.

Defined elsewhere: the events themselves (`_events`), their encoding (`_lines`), and provider streams (`providers`).
"""
