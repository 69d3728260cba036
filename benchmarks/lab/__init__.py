"""The lab: agents solve tasks with a real model, and the results are compared.

`python -m benchmarks.lab` runs contestants × tasks × seeds against any OpenAI-compatible server. Nothing here is needed
to install, use or test the package.

- `contestants`: the agents that are compared, each a subprocess in an environment of its own; their scripts are in
  `agents/`.
- `tasks/`: the lab's tasks, as data with verifiers; `harness` adds easy tasks of the package `harness-bench-fast`.
- `recorder`: a proxy between the agents and the model. It applies the same settings and the same limit to all, and
  records what the model received and returned.
- `trace`, `failures`, `table`: pure functions from recorded requests to a trace, a reason and a table.
- `runs`: one run of one task, and the file of finished runs.
"""
