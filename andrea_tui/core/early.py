"""Imported before Textual, for what has to be settled by then."""

import gc
import os

if os.environ.get("SSH_CONNECTION"):
    # Textual reads it when it is imported. One PageDown costs 13 kB instead of 164 kB without animations.
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

# Nothing that is made while modules are imported and a history is read is garbage; looking for some doubles the
# time of both. The app turns it on again after each.
gc.disable()
