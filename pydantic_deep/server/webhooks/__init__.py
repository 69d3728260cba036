"""Webhooks: signed notices of pending approvals, answers and ended runs, sent to the URLs of their owners.

```text
_webhooks.py    the stored webhooks and deliveries, and what an owner can do with them
_signature.py   secrets and signatures, as Standard Webhooks 1.0 defines them
_discovery.py   finds events in the store, and stores a delivery for each webhook
_requests.py    sends one request to an address that was checked
_sender.py      sends the deliveries that are due, in one process at a time
```
"""
