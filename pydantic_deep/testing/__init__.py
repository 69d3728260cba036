"""Test utilities: models without a provider, a fake clock, and deps with files.

They are for tests and demonstrations. No other module imports this package.

| you want | use |
|---|---|
| responses that you write | `ScriptedModel`, `call` |
| responses of a real model | `RecordingModel` once, then `RecordedModel` |
| control of time | `FakeClock` |
| deps with files in memory | `deps_for_test` |

## The file of a recording

One JSON file, `"format_version": 1`, that can be read and edited by hand:

```json
{
  "format": "pydantic-deep.recording",
  "format_version": 1,
  "model": {"name": "house", "system": "mine", "profile": {"supports_inline_system_prompts": true}},
  "instructions": ["You are a careful analyst."],
  "tools": [[{"name": "ls", "description": "…", "parameters": {"type": "object"}}]],
  "options": [{"output_mode": "text", "settings": {"temperature": 0}}],
  "exchanges": [
    {
      "messages": [{"kind": "request", "parts": [{"content": "Hello", "part_kind": "user-prompt"}]}],
      "response": {"parts": [{"content": "Hi", "part_kind": "text"}], "usage": {"input_tokens": 5, "output_tokens": 2}}
    }
  ]
}
```
An exchange is one request and its response. `messages` contains only the new messages of the request. The messages
before them are those of the exchange with the index `follows`, and its response; without `follows` there are none.
`instructions`, `tools` and `options` are indexes into the lists of the same name, 0 by default. So the size of the file
is proportional to the conversation. The file contains no digests, so a text can be edited in one place; digests are
computed when the file is read.

To write a conversation by hand with the agent's real requests, record a script once:
`RecordingModel(ScriptedModel(…), path)`.
"""

from pydantic_deep._requests.canonical_request import Match

from ._clock import FakeClock
from ._deps import deps_for_test
from ._recorded import RecordedModel, RecordedRequestError, RecordingModel
from ._recording import RecordingFormatError
from ._scripted import Answer, Script, ScriptedModel, ScriptExhaustedError, SeenRequest, Step, call

__all__ = [
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
]
