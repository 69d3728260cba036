"""pydantic-ai by itself, with four small tools."""

from __future__ import annotations

from pathlib import Path

from chat_model import NO_LIMIT, chat_model
from job import Job, main
from pydantic_ai import Agent, ModelRetry

TOOL_RETRIES = 10
"""As ours has it. With pydantic-ai's default of 1, the second failed call ends the run."""

SKILLS = 'The folder skills describes how some work must be done. Read what applies first: {names}.'


async def solve(job: Job) -> str:
    """Return the answer of the agent."""
    root = Path(job.directory).resolve()
    names = ', '.join(str(path.relative_to(root)) for path in sorted(root.glob('skills/*/SKILL.md')))
    instructions = SKILLS.format(names=names) if job.has_skills else None
    agent = Agent(chat_model(job), instructions=instructions, retries={'tools': TOOL_RETRIES})

    def resolve(path: str) -> Path:
        place = (root / path.lstrip('/')).resolve()
        if not place.is_relative_to(root):
            raise ModelRetry(f'{path!r} is outside of the directory.')
        return place

    def read(path: str) -> str:
        try:
            return resolve(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ModelRetry(f'{path!r} cannot be read: {error}') from error

    @agent.tool_plain
    def list_files() -> list[str]:
        """List all files."""
        return [str(path.relative_to(root)) for path in sorted(root.rglob('*')) if path.is_file()]

    @agent.tool_plain
    def read_file(path: str) -> str:
        """Read a file."""
        return read(path)

    @agent.tool_plain
    def write_file(path: str, content: str) -> str:
        """Write a file."""
        if job.denies([path, content]):
            return 'A person denied this call.'
        place = resolve(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
        return 'Written.'

    @agent.tool_plain
    def edit_file(path: str, old: str, new: str) -> str:
        """Replace a text in a file."""
        if job.denies([path, old, new]):
            return 'A person denied this call.'
        text = read(path)
        if old not in text:
            raise ModelRetry(f'{path!r} does not contain {old!r}.')
        resolve(path).write_text(text.replace(old, new, 1))
        return 'Replaced.'

    return (await agent.run(job.prompt, usage_limits=NO_LIMIT)).output


if __name__ == '__main__':
    main(solve)
