"""Special tokens of stories, and the pieces of text that tokens stay within."""

END, UNKNOWN = 0, 1  # tokens: the boundary of stories, and a byte that has no token of its own
SPECIAL_TOKENS = ("<|endoftext|>", "<unk>")  # their names
# Merges stay within a piece: a run of letters, digits or other signs with at most one space before it, or one space.
# Bytes above ASCII count as letters, so that a microcontroller needs no Unicode tables.
PIECES = " ?[A-Za-z\u0080-\U0010ffff]+| ?[0-9]+| ?[^A-Za-z0-9\u0080-\U0010ffff \t\n\r]+|[ \t\n\r]"
