"""Commands about running pods."""
