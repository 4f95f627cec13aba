"""Papers as published: their tables and figures by one command each, and claims that are refuted."""
