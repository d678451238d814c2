"""Pod Security Standards: which pods the levels baseline and restricted allow, by version."""
