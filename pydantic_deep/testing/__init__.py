"""The test kit: models without a provider, a clock that stands still, deps with files in them.

Import it in tests only; nothing else of the framework imports it.

| you want | use |
|---|---|
| answers that you write down | `ScriptedModel`, `call` |
| answers that a real model gave | `RecordingModel` once, then `RecordedModel` |
| time that passes when you say so | `FakeClock` |
| deps with files in memory | `deps_for_test` |
"""

from ._canonical import Match
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
