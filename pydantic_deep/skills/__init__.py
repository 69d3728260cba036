"""Skills: folders with a `SKILL.md` that the model loads when it needs them."""
