"""The model of contestants on pydantic-ai."""

from __future__ import annotations

from job import Job
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

NO_LIMIT = UsageLimits(request_limit=None)
"""The recorder limits the requests of all contestants in the same way."""


def chat_model(job: Job) -> OpenAIChatModel:
    """Return the model of a job."""
    return OpenAIChatModel(job.model, provider=OpenAIProvider(base_url=job.url, api_key='none'))
