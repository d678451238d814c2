"""`kedge support-bundle`: everything that a person who helps needs, without secrets."""
