"""An agent of a user, for tests."""

from pydantic_deep import create_deep_agent

agent = create_deep_agent(None, name='mine')
