"""`kedge up`: start a cluster."""
