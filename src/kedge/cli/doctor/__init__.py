"""`kedge doctor`: what this machine offers and lacks."""
