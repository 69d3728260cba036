"""How do I update the recording of the demo after a change of a prompt or a tool?

This script replays the recorded responses in order, regardless of the requests, and records them again with the current
requests. The responses do not change: if the result of a tool has changed, correct the figures in them by hand. The
tests of the demo compare the figures with the files.
"""

from __future__ import annotations

import json
import sys

from demo import RECORDING, work
from pydantic import TypeAdapter
from pydantic_ai.messages import ModelResponse
from pydantic_ai.usage import RequestUsage

from pydantic_deep.testing import RecordingModel, ScriptedModel


def record_again() -> int:
    """Replay the recorded responses for the current requests, and record both."""
    exchanges = json.loads(RECORDING.read_text('utf-8'))['exchanges']
    adapter = TypeAdapter(ModelResponse)
    answers = [adapter.validate_python({**exchange['response'], 'kind': 'response'}) for exchange in exchanges]
    # No model is involved, so no tokens are used.
    model = ScriptedModel(*answers, usage=RequestUsage(), model_name='hand-written')
    return work(['--model', 'recorded'], {'recorded': RecordingModel(model, RECORDING)})


if __name__ == '__main__':
    sys.exit(record_again())
