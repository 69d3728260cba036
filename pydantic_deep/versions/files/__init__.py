"""Files of versions: how a turn opens and captures them, and how a checkout writes them back.

`_open_files` opens the files for a turn: in their directory, which `_directory_claim` reserves, or in a view
(`_tree_views`, `_scratch_directories`). `_run_files` captures the files of one run, and all runs of a turn share one
`_turn_files`. `_checkout` replaces files of a backend without losing unversioned ones; `_version_checkout` calls it for
a user's checkout, and records the result in the store. `_tree_store` loads trees from the store.

Also here: the descriptions of backends in the store, `.gitignore` rules, and protected files.

Not here: file trees and backends themselves, which belong to `pydantic_deep_backends`.
"""
