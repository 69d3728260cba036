"""Decoders and encoders of the streaming formats of Anthropic, Google and OpenAI, and a response that is passed on.

A decoder turns server-sent events of a provider into our events; an encoder turns our events into those of a provider.
Not here: how bytes become frames (`_frames`), and runs of an agent (`runs`).
"""
