"""How a run is recorded: what each commit of it stores, and in which form.

`Recorder` is the capability that observes a run, `RecordedRun` the state of its recording, and `RequestAccounting` the
list of its model requests. `_attempts` reads what a crashed run left, for the run that resumes it. The other modules
encode what is stored: prompts, tool results and deps.

Not here: files (`files`), paused runs (`pauses`), how crashed runs are resumed (`recovery`), and how a turn begins and
ends (`_turn`).
"""
