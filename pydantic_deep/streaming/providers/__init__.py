"""Decoders and encoders of the streaming formats of Anthropic, Google and OpenAI, and a response that is relayed.

A decoder converts a provider's server-sent events to our events; an encoder converts our events to a provider's format.
Defined elsewhere: the conversion of bytes to frames (`_frames`), and runs of an agent (`runs`).
"""
