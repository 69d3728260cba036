"""The test kit: models without a provider, a clock that stands still, deps with files in them.

For tests and demonstrations; nothing else of the framework imports it.

| you want | use |
|---|---|
| answers that you write down | `ScriptedModel`, `call` |
| answers that a real model gave | `RecordingModel` once, then `RecordedModel` |
| time that passes when you say so | `FakeClock` |
| deps with files in memory | `deps_for_test` |

## The file of a recording

One JSON file, `"format_version": 1`, made to be read and edited by hand:

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
An exchange is one request and its response. `messages` is what is new in the request: before it stand the messages
and the response of the exchange whose index `follows` names, or nothing. `instructions`, `tools` and `options` are
indexes into the lists of that name, 0 when left out. So the file grows with the conversation and not with its
square. There are no digests in it; they are computed when it is read, and whoever edits a text edits one place.

To write a conversation by hand with the agent's real requests in it, record a script once:
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
