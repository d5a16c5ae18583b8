"""Plausible wrong answers to the exercises, none of them planted in flashlearn/exercises/mistakes/.

One file per notebook, of the same name as in flashlearn/exercises. Each holds

    WRONG = {"02.safe": (("the shift is the first entry", function), ...)}

where an entry may carry a third item: a regular expression that the report must match, so that it names the cause. Beside them may
stand right answers that are written in another way, and must pass:

    RIGHT = {"02.safe": (("the maximum by a loop", function), ...)}
"""
