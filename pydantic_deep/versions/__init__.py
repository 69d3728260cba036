"""Version control for agents: every step of every run is a version, to go back to, branch from, compare and resume."""
