"""Images: what they are called, where they come from, and how they are kept on this machine."""
