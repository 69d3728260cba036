"""Secrets and signatures of webhooks, as Standard Webhooks 1.0 defines them (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import hashlib
import hmac

SECRET_PREFIX = 'whsec_'  # noqa: S105 - what precedes a secret
"""The prefix of a secret as people see it; base64 of 32 bytes follows."""


def secret_of(key: str, webhook_id: str) -> str:
    """Return the secret of a webhook. It is derived from the key of the server, so it is not stored."""
    secret = hmac.digest(key.encode(), f'webhook {webhook_id}'.encode(), hashlib.sha256)
    return SECRET_PREFIX + base64.b64encode(secret).decode()


def digest_of(secret: str) -> str:
    """Return the digest of a secret, by which a changed key is noticed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def sign(secret: str, delivery_id: str, timestamp: int, body: str) -> dict[str, str]:
    """Return the headers that identify and sign a request.

    Args:
        secret: The secret of the webhook.
        delivery_id: The id of the delivery, which is the same for each attempt.
        timestamp: The time of this attempt, in seconds since 1970.
        body: The body.
    """
    content = f'{delivery_id}.{timestamp}.{body}'
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = base64.b64encode(hmac.digest(key, content.encode(), hashlib.sha256)).decode()
    return {'webhook-id': delivery_id, 'webhook-timestamp': str(timestamp), 'webhook-signature': f'v1,{signature}'}
