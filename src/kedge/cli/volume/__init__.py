"""`kedge volume`: claims, volumes and the data of local volumes."""
