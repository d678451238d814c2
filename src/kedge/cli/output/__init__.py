"""Tables, documents and templates that commands print."""
