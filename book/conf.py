"""How the static book is built: pages from the stored outputs of the notebooks, nothing is run."""

project = "flashlearn"
author = "flashlearn contributors"
copyright = "2026, flashlearn contributors"

extensions = ["myst_nb", "tools.book.api", "tools.book.formulas"]
nb_execution_mode = "off"  # the stored outputs are what CI has compared
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["frames", "download"]
html_math_renderer = "mathml"

autodoc_typehints = "none"  # docstrings give types and shapes
add_module_names = False

html_theme = "furo"  # one search box, light and dark, and little to load
html_title = "How FlashAttention works"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00588a", "color-brand-content": "#00588a"},
    "dark_css_variables": {"color-brand-primary": "#7cc4f0", "color-brand-content": "#7cc4f0"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
html_static_path = ["_static"]
html_favicon = "_static/icon.svg"
html_css_files = ["player.css", "question.css", "book.css"]
html_js_files = [("book.js", {"defer": "defer"})]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
