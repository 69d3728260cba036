"""Runs what the quick starts of other people's Python clients show, against the server of `tests/js/serve.py`.

It runs in `.venv-clients` without this package: some of these clients need other versions of the official SDKs than ours.
Each function of the modules here whose name begins with `check_` is one check, which gets the `Server`.
The environment variable `SERVED` contains what the server prints; arguments select modules.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from dataclasses import dataclass

MODULES = ('agents_sdk', 'instructor_client', 'langchain_client', 'litellm_client', 'llm_client')
"""The modules with checks."""


@dataclass(frozen=True)
class Server:
    """The server that the clients use."""

    url: str
    """Its address."""
    key: str
    """A key of it."""

    @property
    def openai(self) -> str:
        """The base URL of OpenAI's clients."""
        return f'{self.url}/v1'


def main(modules: list[str]) -> int:
    """Run the checks, print a line for each, and return the exit code."""
    served = json.loads(os.environ['SERVED'])
    server = Server(url=served['url'], key=served['ada'])
    checks = [
        (f'{name}: {check_name.removeprefix("check_").replace("_", " ")}', check)
        for name in modules or MODULES
        for check_name, check in inspect.getmembers(importlib.import_module(name), inspect.isfunction)
        if check_name.startswith('check_')
    ]
    failed = 0
    with asyncio.Runner() as runner:  # one loop, because clients close their connections after a check
        for name, check in checks:
            try:
                if inspect.iscoroutinefunction(check):
                    runner.run(check(server))
                else:
                    check(server)
            except Exception:
                failed += 1
                traceback.print_exc(limit=-4)
                print(f'FAILED {name}')
            else:
                print(f'ok {name}')
    print(f'{len(checks)} checks, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
