"""The node autoscaler of `kedge up --nodes MIN..MAX`: it adds nodes for pods that do not fit, and
removes nodes that are not needed. It is a client of the API like any other."""
