"""A room: requests that failed for a reason that passes, and answers that were cut, are asked for again."""
