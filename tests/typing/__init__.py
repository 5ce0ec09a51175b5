"""Programs for the type checkers: right ones, and mistakes that both checkers must find. None of them runs."""
