"""From a request to the program of a container: fork, namespaces, privileges, execve."""
