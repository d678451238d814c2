"""The live view of `kedge top` on a terminal."""
