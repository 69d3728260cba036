"""Every public name and signature. Growing it is a decision in a diff, never an accident."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import get_origin

import pytest
from inline_snapshot import snapshot

import pydantic_deep
import pydantic_deep_backends

PUBLIC_MODULES = (
    'pydantic_deep',
    'pydantic_deep.errors',
    'pydantic_deep.filesystem',
    'pydantic_deep.testing',
    'pydantic_deep.todos',
    'pydantic_deep_backends',
    'pydantic_deep_backends.conformance',
    'pydantic_deep_backends.errors',
    'pydantic_deep_backends.paths',
    'pydantic_deep_backends.protocol',
    'pydantic_deep_backends.search',
    'pydantic_deep_backends.snapshots',
)


def names(module: str) -> list[str]:
    found = importlib.import_module(module)
    if hasattr(found, '__all__'):
        return sorted(found.__all__)
    return sorted(
        n for n, v in vars(found).items() if not n.startswith('_') and getattr(v, '__module__', None) == module
    )


def test_every_public_name() -> None:
    assert {module: names(module) for module in PUBLIC_MODULES} == snapshot(
        {
            'pydantic_deep': [
                'CompositeBackend',
                'DeepAgentDeps',
                'DeepAgentError',
                'DepsWorkspace',
                'Filesystem',
                'InvalidUploadError',
                'LocalBackend',
                'ReadOnlyBackend',
                'StateBackend',
                'Todo',
                'Todos',
                'ToolFailures',
                'Upload',
                'as_workspace',
                'create_deep_agent',
                'default_capabilities',
            ],
            'pydantic_deep.errors': ['DeepAgentError', 'InvalidUploadError'],
            'pydantic_deep.filesystem': [
                'AnyBackend',
                'BackendSource',
                'Filesystem',
                'OutputMode',
                'UploadLike',
            ],
            'pydantic_deep.testing': [
                'Answer',
                'FakeClock',
                'Match',
                'RecordedModel',
                'RecordedRequestError',
                'RecordingFormatError',
                'RecordingModel',
                'Script',
                'ScriptExhaustedError',
                'ScriptedModel',
                'SeenRequest',
                'Step',
                'call',
                'deps_for_test',
            ],
            'pydantic_deep.todos': ['HasTodos', 'Todo', 'TodoStatus', 'Todos', 'render_todos'],
            'pydantic_deep_backends': [
                'BackendError',
                'BackendProtocol',
                'BackendRef',
                'BackendUnavailableError',
                'Command',
                'CommandResult',
                'CommandTimeoutError',
                'CompositeBackend',
                'Conflict',
                'ConflictKind',
                'FileChangedError',
                'FileEntry',
                'FileEntryLike',
                'FileVersion',
                'GlobResult',
                'GrepMatch',
                'GrepResult',
                'InvalidPathError',
                'InvalidPatternError',
                'LocalBackend',
                'MergeResult',
                'MissingBlobError',
                'OutsideRootError',
                'ReadBlob',
                'ReadOnlyBackend',
                'ReadOnlyError',
                'SandboxProtocol',
                'SearchProblem',
                'StateBackend',
                'SupportsCommands',
                'SupportsCompareAndSwap',
                'SupportsSearch',
                'SupportsSnapshots',
                'Tree',
                'TreeDiff',
                'digest_of',
                'merge_trees',
                'needed_for_merge',
            ],
            'pydantic_deep_backends.conformance': [
                'BackendSuite',
                'GOOD_NAMES',
                'HOSTILE_PATHS',
                'Seed',
            ],
            'pydantic_deep_backends.errors': [
                'BackendError',
                'BackendUnavailableError',
                'CommandTimeoutError',
                'FileChangedError',
                'InvalidPathError',
                'InvalidPatternError',
                'MissingBlobError',
                'OutsideRootError',
                'ReadOnlyError',
            ],
            'pydantic_deep_backends.paths': [
                'display_path',
                'is_within',
                'parse_path',
                'path_parts',
                'path_problem',
                'relative_to',
                'resolve_path',
            ],
            'pydantic_deep_backends.protocol': [
                'BackendProtocol',
                'BackendRef',
                'CommandResult',
                'FileEntry',
                'FileEntryLike',
                'SandboxProtocol',
                'SupportsCommands',
                'SupportsCompareAndSwap',
                'SupportsSearch',
                'SupportsSnapshots',
            ],
            'pydantic_deep_backends.search': [
                'FileTree',
                'GlobResult',
                'GrepMatch',
                'GrepResult',
                'MAX_ENTRIES',
                'MAX_FILE_BYTES',
                'MAX_LINE_CHARS',
                'SearchProblem',
                'SearchableFiles',
                'count_broken_utf8',
                'glob_backend',
                'glob_tree',
                'grep_backend',
                'grep_file',
                'grep_tree',
                'split_lines',
            ],
            'pydantic_deep_backends.snapshots': [
                'Conflict',
                'ConflictKind',
                'FileVersion',
                'MergeResult',
                'Tree',
                'TreeDiff',
                'digest_of',
                'merge_trees',
                'needed_for_merge',
            ],
        }
    )


def signatures(module: ModuleType) -> dict[str, str]:
    """Return the signature of every public function, class and public method of a module."""
    found: dict[str, str] = {}
    for name in names(module.__name__):
        value = getattr(module, name)
        if get_origin(value) is not None:
            continue  # a type alias
        if inspect.isclass(value):
            if '__init__' in vars(value):
                found[name] = signature(value)
            methods = {n: m for n, m in vars(value).items() if inspect.isfunction(m) and not n.startswith('_')}
            found |= {f'{name}.{n}': signature(m) for n, m in methods.items()}
        elif inspect.isfunction(value):
            found[name] = signature(value)
    return found


def signature(value: Callable[..., object]) -> str:
    parameters = inspect.signature(value).parameters.values()
    return ', '.join(p.name if p.default is p.empty else f'{p.name}=…' for p in parameters if p.name != 'self')


def test_every_signature() -> None:
    assert signatures(pydantic_deep) == snapshot(
        {
            'CompositeBackend': 'default, mounts',
            'CompositeBackend.working_dir': '',
            'CompositeBackend.read_bytes': 'path',
            'CompositeBackend.write_bytes': 'path, data',
            'CompositeBackend.stat': 'path',
            'CompositeBackend.list_dir': 'path',
            'CompositeBackend.make_dir': 'path',
            'CompositeBackend.remove': 'path',
            'CompositeBackend.exists': 'path',
            'CompositeBackend.realpath': 'path',
            'CompositeBackend.glob': 'pattern, path=…',
            'CompositeBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'DeepAgentDeps': 'backend=…, todos=…, uploads=…, subagents=…, usage_limits=…, metadata=…, max_depth=…',
            'DeepAgentDeps.upload': 'name, data',
            'DeepAgentDeps.clone_for_subagent': 'max_depth=…',
            'DeepAgentDeps.to_json': '',
            'DepsWorkspace': 'id=…, description=…, defer_loading=…, deps_type=…',
            'DepsWorkspace.get_workspace': 'ctx, ref',
            'DepsWorkspace.for_run': 'ctx',
            'DepsWorkspace.before_run': 'ctx',
            'DepsWorkspace.get_wrapper_toolset': 'toolset',
            'Filesystem': 'id=…, description=…, defer_loading=…, backend=…, offload_chars=…',
            'Filesystem.for_run': 'ctx',
            'Filesystem.get_instructions': '',
            'Filesystem.get_toolset': '',
            'Filesystem.before_model_request': 'ctx, request_context',
            'Filesystem.after_tool_execute': 'ctx, call, tool_def, args, result',
            'InvalidUploadError': 'name, reason',
            'LocalBackend': 'root',
            'LocalBackend.working_dir': '',
            'LocalBackend.read_bytes': 'path',
            'LocalBackend.write_bytes': 'path, data',
            'LocalBackend.compare_and_swap': 'path, data, expected',
            'LocalBackend.stat': 'path',
            'LocalBackend.list_dir': 'path',
            'LocalBackend.make_dir': 'path',
            'LocalBackend.remove': 'path',
            'LocalBackend.exists': 'path',
            'LocalBackend.realpath': 'path',
            'LocalBackend.glob': 'pattern, path=…',
            'LocalBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'LocalBackend.snapshot': '',
            'LocalBackend.changes': 'tree',
            'LocalBackend.restore': 'tree, read_blob=…',
            'ReadOnlyBackend': 'backend',
            'ReadOnlyBackend.working_dir': '',
            'ReadOnlyBackend.read_bytes': 'path',
            'ReadOnlyBackend.write_bytes': 'path, data',
            'ReadOnlyBackend.stat': 'path',
            'ReadOnlyBackend.list_dir': 'path',
            'ReadOnlyBackend.make_dir': 'path',
            'ReadOnlyBackend.remove': 'path',
            'ReadOnlyBackend.exists': 'path',
            'ReadOnlyBackend.realpath': 'path',
            'StateBackend': 'files=…',
            'StateBackend.working_dir': '',
            'StateBackend.read_bytes': 'path',
            'StateBackend.write_bytes': 'path, data',
            'StateBackend.stat': 'path',
            'StateBackend.list_dir': 'path',
            'StateBackend.make_dir': 'path',
            'StateBackend.remove': 'path',
            'StateBackend.exists': 'path',
            'StateBackend.realpath': 'path',
            'StateBackend.compare_and_swap': 'path, data, expected',
            'StateBackend.glob': 'pattern, path=…',
            'StateBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'StateBackend.snapshot': '',
            'StateBackend.restore': 'tree, read_blob=…',
            'StateBackend.changes': 'tree',
            'Todo': 'content, status=…',
            'Todos': 'id=…, description=…, defer_loading=…, instructions=…',
            'Todos.for_run': 'ctx',
            'Todos.get_instructions': '',
            'Todos.get_toolset': '',
            'Todos.before_model_request': 'ctx, request_context',
            'ToolFailures': 'id=…, description=…, defer_loading=…, propagate=…',
            'ToolFailures.on_tool_execute_error': 'ctx, call, tool_def, args, error',
            'ToolFailures.on_tool_validate_error': 'ctx, call, tool_def, args, error',
            'ToolFailures.get_wrapper_toolset': 'toolset',
            'Upload': 'name, path, size_bytes, encoding, line_count, media_type',
            'as_workspace': 'backend',
            'create_deep_agent': 'model=…, instructions=…, output_type=…, deps_type=…, name=…, tools=…, toolsets=…, capabilities=…, subagents=…, skills=…, interrupt_on=…, include_todo=…, include_filesystem=…, include_subagents=…, include_skills=…, summarization=…, model_settings=…',
            'default_capabilities': 'deps_type=…, include_todo=…, include_filesystem=…',
        }
    )
    assert signatures(pydantic_deep_backends) == snapshot(
        {
            'BackendProtocol': 'args, kwargs',
            'BackendProtocol.working_dir': '',
            'BackendProtocol.read_bytes': 'path',
            'BackendProtocol.write_bytes': 'path, data',
            'BackendProtocol.stat': 'path',
            'BackendProtocol.list_dir': 'path',
            'BackendProtocol.make_dir': 'path',
            'BackendProtocol.remove': 'path',
            'BackendProtocol.exists': 'path',
            'BackendProtocol.realpath': 'path',
            'BackendRef': 'provider, id',
            'CommandResult': 'exit_code, stdout, stderr',
            'CommandTimeoutError': 'message, stdout=…, stderr=…',
            'CompositeBackend': 'default, mounts',
            'CompositeBackend.working_dir': '',
            'CompositeBackend.read_bytes': 'path',
            'CompositeBackend.write_bytes': 'path, data',
            'CompositeBackend.stat': 'path',
            'CompositeBackend.list_dir': 'path',
            'CompositeBackend.make_dir': 'path',
            'CompositeBackend.remove': 'path',
            'CompositeBackend.exists': 'path',
            'CompositeBackend.realpath': 'path',
            'CompositeBackend.glob': 'pattern, path=…',
            'CompositeBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'Conflict': 'path, kind, base, ours, theirs',
            'FileChangedError': 'path, expected, actual',
            'FileEntry': 'name, path, is_dir, size',
            'FileEntryLike': 'args, kwargs',
            'FileVersion': 'digest, size, mode=…',
            'GlobResult': 'paths, problems=…',
            'GrepMatch': 'path, line_number, line',
            'GrepResult': 'matches, counts, problems=…, truncated=…, files_searched=…',
            'InvalidPathError': 'path, reason',
            'InvalidPatternError': 'pattern, reason',
            'LocalBackend': 'root',
            'LocalBackend.working_dir': '',
            'LocalBackend.read_bytes': 'path',
            'LocalBackend.write_bytes': 'path, data',
            'LocalBackend.compare_and_swap': 'path, data, expected',
            'LocalBackend.stat': 'path',
            'LocalBackend.list_dir': 'path',
            'LocalBackend.make_dir': 'path',
            'LocalBackend.remove': 'path',
            'LocalBackend.exists': 'path',
            'LocalBackend.realpath': 'path',
            'LocalBackend.glob': 'pattern, path=…',
            'LocalBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'LocalBackend.snapshot': '',
            'LocalBackend.changes': 'tree',
            'LocalBackend.restore': 'tree, read_blob=…',
            'MergeResult': 'tree, conflicts, blobs',
            'MissingBlobError': 'paths',
            'OutsideRootError': 'path',
            'ReadOnlyBackend': 'backend',
            'ReadOnlyBackend.working_dir': '',
            'ReadOnlyBackend.read_bytes': 'path',
            'ReadOnlyBackend.write_bytes': 'path, data',
            'ReadOnlyBackend.stat': 'path',
            'ReadOnlyBackend.list_dir': 'path',
            'ReadOnlyBackend.make_dir': 'path',
            'ReadOnlyBackend.remove': 'path',
            'ReadOnlyBackend.exists': 'path',
            'ReadOnlyBackend.realpath': 'path',
            'ReadOnlyError': 'path',
            'SearchProblem': 'path, reason',
            'StateBackend': 'files=…',
            'StateBackend.working_dir': '',
            'StateBackend.read_bytes': 'path',
            'StateBackend.write_bytes': 'path, data',
            'StateBackend.stat': 'path',
            'StateBackend.list_dir': 'path',
            'StateBackend.make_dir': 'path',
            'StateBackend.remove': 'path',
            'StateBackend.exists': 'path',
            'StateBackend.realpath': 'path',
            'StateBackend.compare_and_swap': 'path, data, expected',
            'StateBackend.glob': 'pattern, path=…',
            'StateBackend.grep': 'pattern, path=…, glob=…, limit=…',
            'StateBackend.snapshot': '',
            'StateBackend.restore': 'tree, read_blob=…',
            'StateBackend.changes': 'tree',
            'SupportsCommands': 'args, kwargs',
            'SupportsCommands.run': 'command, shell=…, env=…, timeout=…',
            'SupportsCompareAndSwap': 'args, kwargs',
            'SupportsCompareAndSwap.compare_and_swap': 'path, data, expected',
            'SupportsSearch': 'args, kwargs',
            'SupportsSearch.glob': 'pattern, path=…',
            'SupportsSearch.grep': 'pattern, path=…, glob=…, limit=…',
            'SupportsSnapshots': 'args, kwargs',
            'SupportsSnapshots.snapshot': '',
            'SupportsSnapshots.restore': 'tree, read_blob=…',
            'SupportsSnapshots.changes': 'tree',
            'Tree': '',
            'Tree.nodes': 'known=…',
            'Tree.get': 'path',
            'Tree.is_dir': 'path',
            'Tree.file_above': 'path',
            'Tree.entries': 'path=…',
            'Tree.subtree': 'path',
            'Tree.set': 'path, version',
            'Tree.remove': 'path',
            'Tree.graft': 'path, tree',
            'Tree.diff': 'other',
            'Tree.items': '',
            'TreeDiff': 'added=…, removed=…, changed=…',
            'digest_of': 'data',
            'merge_trees': 'base, ours, theirs, contents',
            'needed_for_merge': 'base, ours, theirs',
        }
    )


@pytest.mark.parametrize('module', [pydantic_deep, pydantic_deep_backends])
def test_every_public_name_has_a_docstring_of_its_own(module: ModuleType) -> None:
    public = {name: getattr(module, name) for name in names(module.__name__)}
    described = {n: v for n, v in public.items() if inspect.isclass(v) or inspect.isfunction(v)}
    assert [name for name, value in described.items() if not inspect.getdoc(value)] == []


def test_the_signature_of_the_factory() -> None:
    parameters = inspect.signature(pydantic_deep.create_deep_agent).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        'model': None,
        'instructions': None,
        'output_type': str,
        'deps_type': pydantic_deep.DeepAgentDeps,
        'name': 'deep-agent',
        'tools': (),
        'toolsets': (),
        'capabilities': (),
        'subagents': (),
        'skills': (),
        'interrupt_on': None,
        'include_todo': True,
        'include_filesystem': True,
        'include_subagents': False,
        'include_skills': False,
        'summarization': False,
        'model_settings': None,
    }
