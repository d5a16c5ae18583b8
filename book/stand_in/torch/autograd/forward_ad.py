"""No forward-mode derivatives are taken."""

_current_level = -1
