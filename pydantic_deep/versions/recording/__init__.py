"""How a run is recorded: what each commit of it stores, and in which form.

`Recorder` is the capability that observes a run, `RecordedRun` the state of its recording, and `RequestAccounting` the
list of its model requests. The other modules encode what is stored: messages, prompts, tool results and deps.

Not here: files (`files`), paused runs (`pauses`), crashed runs (`recovery`), and how a turn begins and ends (`_turn`).
"""
