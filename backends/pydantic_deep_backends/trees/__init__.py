"""Trees of files: the nodes, their encoding and digests, `Tree` and `TreeDiff`, three-way merge, and contents in memory.

The public names are in `pydantic_deep_backends.snapshots`. `_blobs` stores the contents of `StateBackend`.

Not here: how a backend captures its files as a tree (`local`, `state`, `composite`), or restores them.
"""
