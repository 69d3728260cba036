"""An agent of a user, for tests."""

from pydantic_ai import RunContext

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep_backends.protocol import SupportsCommands

agent = create_deep_agent(None, name='mine')


@agent.tool
async def build(ctx: RunContext[DeepAgentDeps]) -> str:
    """Run a command."""
    backend = ctx.deps.backend
    assert isinstance(backend, SupportsCommands)
    return (await backend.run('echo built', shell=True)).stdout
