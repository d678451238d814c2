"""The gateway: HTTP from the machine to Services, by host name and by Ingress."""
