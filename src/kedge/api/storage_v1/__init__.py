"""The kinds of persistent storage, reduced to the fields that kedge acts on."""
