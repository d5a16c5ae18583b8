"""The static book, build/book/index.html, from the notebooks: their stored words, and pictures of their cells, run again.

    python -m tools.book           all of it
    python -m tools.book 03 07     these chapters alone, for a quick look

`gallery` runs the notebooks again, in processes of `rerun`, and keeps what they show; `pictures` and `figures` make figures
of it. `pages` turns notebooks into pages, which open as
`chapter` says, `runs` records what the explorers show, `faces` and `formulas` cut the fonts, `theme` tells the templates of
`book/theme` about a page, `sections` is what the search looks through, and `finish` closes the pages: their scripts, their
policy, their weight.
"""
