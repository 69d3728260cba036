"""Access to the files below one real directory, through open descriptors and without leaving it.

`_open_flags` has the flags of `os.open`, `_confined_root` walks to a path, `_operations` reads, writes, removes and
locks there, `_directories` walks a whole tree, `_hard_links` detects hard links that lead outside, and `_mount_point`
maps virtual paths to names below the directory.

Not here: `LocalBackend` (`local`) and everything that takes virtual paths.
"""
