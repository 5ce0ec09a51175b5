"""Two workflows to read, run and copy: refunds of an online shop, and the review of messages."""
