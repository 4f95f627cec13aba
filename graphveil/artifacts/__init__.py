"""Release folders: what may be published of a fit, as files, as pages for people, and as plain data."""
