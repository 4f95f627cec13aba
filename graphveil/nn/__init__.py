"""Networks: layers, and what methods build of them; none of them reads anything protected by itself."""
