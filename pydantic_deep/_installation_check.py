"""A warning if the distribution `pydantic-deep` of PyPI, another project, is installed into the same directory.

Both projects have the package `pydantic_deep`, and pip installs the files of one over those of the other.
If the other project was installed last, its `pydantic_deep` is imported, and this module is not.

`importlib.metadata` is not used: it reads every directory of `sys.path`, and mixed files are in one of them only.
`os.listdir` takes a third of the time of `Path.glob`, and every import of the package pays for it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Final

_PREFIX: Final = 'pydantic_deep-'
"""The beginning of the name of the directory with the metadata of the other project. The version follows."""

_SUFFIX: Final = '.dist-info'
"""The end of that name."""


def warn_if_mixed(package_path: Iterable[str]) -> None:
    """Warn if the metadata of the other project is beside this package.

    The category is `UserWarning`: a filter cannot name a class of a package that warns while it is imported.

    Args:
        package_path: The `__path__` of this package. A path that is not a directory, as in a zip file, is skipped.
    """
    for folder in package_path:
        directory = os.path.dirname(folder) or os.curdir  # noqa: PTH120 - see above
        for name in _list_directory(directory):
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                version = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
                warnings.warn(
                    f"'pydantic-deep' {version}, another project, and 'versioned-deep-agents' are both installed in "
                    f"{directory!r}. Their files are mixed, because both install the package 'pydantic_deep'. Run "
                    "`pip uninstall pydantic-deep versioned-deep-agents`, then install 'versioned-deep-agents' again.",
                    UserWarning,
                    stacklevel=3,
                )


def _list_directory(directory: str) -> list[str]:
    """Return the names in a directory; none if it cannot be read."""
    try:
        return os.listdir(directory)  # noqa: PTH208 - see above
    except OSError:
        return []
