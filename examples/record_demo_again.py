"""How is the demo's recording brought up to date? For those who change a prompt or a tool.

It plays the recorded answers in their order, whatever is asked, and writes them down again with the requests of today.
The answers are not changed: if a tool now finds something else, correct the figures in them by hand. The tests of the
demo compare the figures with the files.
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
    """Play the recorded answers to the requests of today, and write both down."""
    exchanges = json.loads(RECORDING.read_text('utf-8'))['exchanges']
    adapter = TypeAdapter(ModelResponse)
    answers = [adapter.validate_python({**exchange['response'], 'kind': 'response'}) for exchange in exchanges]
    # No model was asked, so no tokens were used.
    model = ScriptedModel(*answers, usage=RequestUsage(), model_name='hand-written')
    return work(['--model', 'recorded'], {'recorded': RecordingModel(model, RECORDING)})


if __name__ == '__main__':
    sys.exit(record_again())
