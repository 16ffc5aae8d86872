"""Guarantees of pages for those who host and change them."""

from __future__ import annotations

import gzip
import re

import pytest

from webpte.web_files import page_files

KINDS = ("language", "encoder", "image", "program", "check", "server")
MAX_PAGE_BYTES = 22_500  # gzipped file by file


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_small(kind):
    sizes = {name: len(gzip.compress(data, 9, mtime=0)) for name, data in page_files(kind)}
    assert sum(sizes.values()) <= MAX_PAGE_BYTES, sizes


@pytest.mark.parametrize("kind", KINDS)
def test_pages_refer_to_existing_files_without_inline_code(kind):
    files = dict(page_files(kind))
    html = files["index.html"].decode()
    for name in re.findall(r'(?:src|href)="\./([^"]+)"', html):
        assert name in files
    assert not re.search(r"<style|<script(?! type=\"module\" src=)|\son\w+=|\sstyle=", html)
    for name, data in files.items():
        if name.endswith(".js"):
            text = data.decode()
            assert not re.search(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", text
            ), name
            assert max(map(len, text.splitlines())) <= 120, name
