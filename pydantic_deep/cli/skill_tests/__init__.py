"""Tests of skills: the cases in the folder `evals` of a skill, the runs of their prompts, and the report.

Nothing here prints; `commands/_skill_tests.py` does. The format of cases is that of the Agent Skills standard, with
mechanical checks and scripted steps in addition. No model judges an answer.
"""
