"""Recording of runs: the commits of a run, and the encoding of their content.

`Recorder` is the capability that observes a run, `RecordedRun` its recording, which makes the commits. `CallLedger`
records the tool calls, `RequestAccounting` the model requests, and `StoredHistory` the messages. `_attempts` reads the
work of a crashed run, for the run that resumes it. The other modules encode prompts, tool results and deps.

Not here: files (`files`), paused runs (`pauses`), recovery of crashed runs (`recovery`), and the start and end of a
turn (`_turn`).
"""
