"""Files of versions: how a turn opens and captures them, and how a checkout writes them back.

Also here: the directories that turns work in and who has claimed them, the descriptions of backends in the store,
`.gitignore` rules, and protected files.

Not here: file trees and backends themselves, which belong to `pydantic_deep_backends`.
"""
