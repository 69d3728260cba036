"""The chat at a terminal: the loop, its verbs, and the prompt with completion.

A verb is a line such as `/rewind HEAD~`. A group of verbs is a module with a tuple of `Verb`; `_chat.py` has the table
of all groups, from which `/help` and the completion are made.
"""
