"""A catalog as a service: a page and an HTTP interface."""
