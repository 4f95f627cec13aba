"""What papers print, as tables: from the text, from the authors' notebooks, or read off their plots."""
