"""ClassCode for unit ``node-owner``: labelled codes pushed along the sources' own edges."""
