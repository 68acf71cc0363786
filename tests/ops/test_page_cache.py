"""Which reads of an unfinished stream are the page cache's."""

import pytest

from ollie_fuse.nodes import UNFINISHED_BYTES
from ollie_fuse.ops.page_cache import PageCacheRefusal, PageCacheRefused

PAGE = 4096
UNKNOWN = 0
"""No thread, so that the request alone decides."""


def is_refused(refusal: PageCacheRefusal, offset: int, size: int) -> bool:
    try:
        refusal.check(offset, size)
    except PageCacheRefused:
        return True
    return False


def test_both_fills_are_refused() -> None:
    """The page cache asks for the whole size, then for the first page; the read(2) that follows passes."""
    refusal = PageCacheRefusal(UNKNOWN, 7)
    asked = [(0, UNFINISHED_BYTES), (0, PAGE), (0, PAGE), (0, 65536)]
    assert [is_refused(refusal, *read) for read in asked] == [True, True, False, False]


@pytest.mark.parametrize("read", [(0, PAGE), (PAGE, UNFINISHED_BYTES), (0, 65536), (3, UNFINISHED_BYTES), (0, 100)])
def test_other_reads_pass(read: tuple[int, int]) -> None:
    """A program that reads by pages, or from elsewhere, is never mistaken for the page cache."""
    assert not is_refused(PageCacheRefusal(UNKNOWN, 7), *read)


def test_page_after_another_read_passes() -> None:
    """The first page is a fill only right after the whole size was refused."""
    refusal = PageCacheRefusal(UNKNOWN, 7)
    assert is_refused(refusal, 0, UNFINISHED_BYTES)
    assert not is_refused(refusal, PAGE, PAGE)
    assert not is_refused(refusal, 0, PAGE)
