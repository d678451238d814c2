"""Parts of objects with endpoints of their own."""
