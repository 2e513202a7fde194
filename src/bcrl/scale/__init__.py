"""The same work on a Ray cluster: other processes that share what a method has to do."""
