"""ClassCode for unit ``node-record``: labeled codes pushed along the sources' own edges."""
