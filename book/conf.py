"""How the static book is built: pages from the stored outputs of the notebooks, nothing is run."""

project = "flashlearn"
author = "flashlearn contributors"
copyright = "2026, flashlearn contributors"

extensions = ["myst_nb", "sphinx-mathjax-offline"]
nb_execution_mode = "off"  # the stored outputs are what CI has compared
nb_mime_priority_overrides = [("*", "image/png", 0)]  # a stepper's still, before its text
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "sphinx_book_theme"
html_title = "flashlearn: how FlashAttention works"
html_theme_options = {
    "show_navbar_depth": 1,
    "use_download_button": True,
    "use_fullscreen_button": True,
    "home_page_in_toc": True,
}
html_static_path = ["_static"]
html_css_files = ["book.css"]
