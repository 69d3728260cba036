"""Agents over HTTP: `create_app(agents=…, store=…)`. It needs the extra `server`."""
