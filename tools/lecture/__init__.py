"""The lecture: one deck for a lecture hall, its notes, and a handout. `python -m tools.lecture` builds it."""
