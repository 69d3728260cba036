"""Trees of files: nodes, their encoding and digests, `Tree` and `TreeDiff`, three-way merge, and contents in memory.

The public names are in `pydantic_deep_backends.snapshots`. `_blobs` stores the contents of `StateBackend`.

Not here: the capture of a backend's files as a tree, and their restoration (`local`, `state`, `composite`).
"""
