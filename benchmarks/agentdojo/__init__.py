"""AgentDojo: the harmful calls that run without a person if a model obeys every injection.

`__main__` installs the suites, runs all pairs of user task and injection, and prints the table. `suites` reads AgentDojo,
`cases` runs a case with an agent and a scripted model, and needs no AgentDojo.
"""
