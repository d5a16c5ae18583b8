"""How the static book is built: pages from the stored outputs of the notebooks, nothing is run."""

project = "flashlearn"
author = "flashlearn contributors"
copyright = "2026, flashlearn contributors"

extensions = ["myst_nb", "tools.book.api", "tools.book.formulas", "tools.book.theme"]
nb_execution_mode = "off"  # the stored outputs are what CI has compared
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["frames", "download", "theme"]
html_math_renderer = "mathml"

autodoc_typehints = "none"  # docstrings give types and shapes
add_module_names = False

html_theme_path = ["theme"]
html_theme = "course"  # our own: what it needs of a page is in tools/book/theme.py
html_title = "How FlashAttention works"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_use_index = False
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
