"""The first example of the README, as users will paste it."""

from __future__ import annotations

from pydantic_deep import DeepAgentDeps, create_deep_agent

agent = create_deep_agent('anthropic:claude-opus-5-5', instructions='You are a careful analyst.')


def run() -> str:
    result = agent.run_sync('Write three lines on why the sky is blue into sky.md.', deps=DeepAgentDeps())
    return result.output
