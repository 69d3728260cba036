"""Search the web and read pages, with rules for domains.

`Web` is the capability. Which domains need approval is in `_domains.py`; `_toolset.py` has the tools `web_search`, by ddgs,
and `web_fetch`, by pydantic-ai. Its download resolves a name once, refuses private addresses, connects to the address
that it has checked, and does so again for each redirect.


`FileDownloader` is the same download for programs: a file of which other people have named the URL.
"""

from ._capability import Web
from ._download import DownloadError, FileDownloader

__all__ = ('DownloadError', 'FileDownloader', 'Web')
