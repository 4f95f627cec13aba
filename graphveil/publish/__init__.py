"""Release folders: the public part of a fit, as files, as pages, and as plain data."""
