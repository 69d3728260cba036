"""Pages of a list."""


def page_count(total: int, size: int) -> int:
    """Return the number of pages that show all items."""
    return total // size
