"""JSON web tokens of other issuers, as an AuthenticationConfiguration describes them."""
