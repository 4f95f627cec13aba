"""What people look at: reports, figures, notices."""
