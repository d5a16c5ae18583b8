"""The map of all algorithms is one printed page."""

import re

import pytest

from flashlearn.show import course_map

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_the_map_is_one_page_of_a4(chromium, tmp_path):
    course_map.main([str(tmp_path / "map.html")])
    page = chromium.new_page(viewport={"width": 1123, "height": 794})
    page.goto((tmp_path / "map.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 1123
    printed = page.pdf(prefer_css_page_size=True)
    page.close()
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
