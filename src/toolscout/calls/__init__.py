"""A call's way in and out: arguments checked and repaired, results told and kept."""
