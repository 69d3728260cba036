"""The modules of both packages, and the names of the public ones."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = {
    'pydantic_deep': ROOT / 'pydantic_deep',
    'pydantic_deep_backends': ROOT / 'backends' / 'pydantic_deep_backends',
}


@cache
def modules() -> Mapping[str, Path]:
    """Return the file of each module of both packages."""
    found: dict[str, Path] = {}
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob('*.py')):
            parts = path.relative_to(folder).with_suffix('').parts
            if all(part.isidentifier() for part in parts) and (path.parent / '__init__.py').exists():
                found['.'.join((package, *parts)).removesuffix('.__init__')] = path
    return found


def is_private(module: str) -> bool:
    """Return whether a module or one of its parent packages starts with an underscore."""
    return any(part.startswith('_') and part != '__main__' for part in module.split('.'))


@cache
def public_modules() -> tuple[str, ...]:
    """Return the modules with public names, without `__main__`."""
    candidates = (module for module in modules() if not is_private(module) and not module.endswith('__main__'))
    return tuple(module for module in candidates if public_names(module))


def public_names(module: str) -> dict[str, object]:
    """Return the values of `__all__` by name. Without it, those defined in the module."""
    found = importlib.import_module(module)
    if hasattr(found, '__all__'):
        return {name: getattr(found, name) for name in found.__all__}
    body = ast.parse(inspect.getsource(found)).body
    defined = [node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))]
    assigned = [name for name, _ in names_and_docstrings(body)]
    named = {name: getattr(found, name) for name in [*defined, *assigned] if not name.startswith('_')}
    return {name: value for name, value in named.items() if not isinstance(value, TypeVar)}


def names_and_docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Yield each assigned name, and whether a docstring follows it, which the reference pages require."""
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target), is_described
        elif isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), is_described
