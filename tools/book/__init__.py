"""The static book, build/book/index.html, made from the stored outputs of the notebooks: nothing is run, nothing is fetched.

    python -m tools.book

`pages` turns notebooks into pages, `frames` cuts stored animations into the frames of a player, `runs` records what
the explorers show, `formulas` sets mathematics, `finish` closes the pages: their scripts, their policy, their weight.
"""
