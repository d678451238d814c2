"""`kedge edit`: change an object in an editor."""
