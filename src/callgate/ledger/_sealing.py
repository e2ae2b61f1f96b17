"""Encryption of held arguments in a database that others can read: AES-256-GCM under a key from the environment.

Law: without the key the arguments are not held, and what was sealed for one call opens for no other.
(tests/test_ledger_held.py::test_postgres_holds_only_what_it_can_encrypt)
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Any

from callgate.errors import ConfigError, LedgerError

KEY_VARIABLE = "CALLGATE_LEDGER_KEY"
"""Environment variable with 32 bytes in base64."""
_NONCE = 12
"""Bytes, as NIST SP 800-38D recommends for GCM; random, which is sound for 2^32 messages under one key."""
_HINT = "make one with `openssl rand -base64 32`"


class Box:
    """Seals and opens texts."""

    def __init__(self, key: bytes, cipher: Any) -> None:
        self._cipher = cipher(key)

    def seal(self, text: str, run_id: str, call_id: str) -> str:
        """The text encrypted for this call of this run, as ASCII."""
        nonce = os.urandom(_NONCE)
        # Bound to its run and call (the additional data of GCM): a row that somebody moves to another call does not
        # open there.
        sealed: bytes = self._cipher.encrypt(nonce, text.encode("ascii"), _bound_to(run_id, call_id))
        return base64.b64encode(nonce + sealed).decode("ascii")

    def unseal(self, text: str, run_id: str, call_id: str) -> str:
        """The text that was sealed for this call. Raises LedgerError if it is damaged or the key is another one."""
        try:
            raw = base64.b64decode(text, validate=True)
            opened: bytes = self._cipher.decrypt(raw[:_NONCE], raw[_NONCE:], _bound_to(run_id, call_id))
        except Exception as error:  # InvalidTag, or whatever a damaged text leads to
            raise LedgerError(
                f"run {run_id}: the held arguments of call {call_id} cannot be opened: they are damaged, or"
                f" {KEY_VARIABLE} is not the key that they were sealed with"
            ) from error
        return opened.decode("ascii")


def box(key: str | None) -> Box | None:
    """The box for a key of the environment; None without a key. Raises ConfigError for one that is no key."""
    if not key:
        return None
    try:
        # Both alphabets of RFC 4648: people paste what their secret store prints.
        raw = base64.b64decode(key.translate({ord("-"): "+", ord("_"): "/"}), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{KEY_VARIABLE}: not base64; {_HINT}") from error
    if len(raw) != 32:
        raise ConfigError(f"{KEY_VARIABLE}: {len(raw)} bytes, not 32; {_HINT}")
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ConfigError(
            f"{KEY_VARIABLE} needs the package cryptography: install it with `pip install 'callgate[postgres]'`"
        ) from error
    return Box(raw, AESGCM)


def _bound_to(run_id: str, call_id: str) -> bytes:
    # With the length: ("a", "bc") and ("ab", "c") are not the same call.
    return f"{len(run_id)}:{run_id}{call_id}".encode("utf-8", "surrogatepass")
