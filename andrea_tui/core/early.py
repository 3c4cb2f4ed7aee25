"""Imported before Textual, for what has to be settled by then."""

import gc
import os

if os.environ.get("SSH_CONNECTION"):
    # Textual reads it when it is imported. One PageDown costs 13 kB instead of 164 kB without animations.
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")

if os.environ.get("NO_COLOR") == "":
    del os.environ["NO_COLOR"]  # empty is unset, by its convention; Textual asks only whether it is there

# Nothing that is made while modules are imported and a history is read is garbage; looking for some doubles the
# time of both. The app turns it on again after each.
gc.disable()
