"""The configuration of the command line: files, the environment and options, in this order of strength.

`_schema` has the contents of a file, `_files` finds and reads files, `_trust` stores which project files the user
trusts, `_effective` combines all sources.
"""
